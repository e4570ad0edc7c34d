//! The kernel driver's text files: `information`, one for each card, and `version`.

use crate::device::{self, PciAddress};
use crate::inventory::text;
use crate::plain;

/// What one `information` file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Information {
    pub(super) model: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) bus: Option<PciAddress>,
    pub(super) minor: Option<u32>,
    pub(super) excluded: bool,
}

/// Parses `LABEL: VALUE` lines, padded with blanks and tabs; labels come and go with the driver's version. `None` if not
/// a single label is known: then it is not such a file.
pub(super) fn parse(text: &str) -> Option<Information> {
    let mut information = Information::default();
    let mut known = false;
    for (label, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        known |= match label.trim() {
            "Model" => assign(&mut information.model, Some(plain::masked(value))),
            "GPU UUID" => assign(&mut information.uuid, device::uuid(value)),
            "Bus Location" => assign(&mut information.bus, value.parse().ok()),
            "Device Minor" => assign(&mut information.minor, value.parse().ok()),
            "GPU Excluded" | "Blacklisted" => {
                information.excluded = value == "Yes";
                true
            }
            _ => false,
        };
    }
    known.then_some(information)
}

fn assign<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    *field = value;
    true
}

/// The version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 17 ...`. The words before it vary.
pub(super) fn version(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("NVRM version:"))?;
    let is_version = |word: &&str| word.contains('.');
    line.split_ascii_whitespace().filter(is_version).find_map(text::version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn accepts() {
        let all = Information {
            model: Some("NVIDIA L4".to_owned()), uuid: Some("GPU-1-a".to_owned()),
            bus: "0000:3b:00.0".parse().ok(), minor: Some(3), excluded: false,
        };
        for (case, text, expected) in [
            ("padded",        "Model: \t\t NVIDIA L4\nIRQ:   \t\t 63\nGPU UUID: \t GPU-1-a\nBus Location: \t 0000:3b:00.0\nDevice Minor: \t 3\nBlacklisted:\t No\n", all.clone()),
            ("firmware",      "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nBus Location: 0000:3b:00.0\nDevice Minor: 3\nGPU Firmware: 535.1\nGPU Excluded: No\n", all.clone()),
            ("excluded",      "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nBus Location: 0000:3b:00.0\nDevice Minor: 3\nGPU Excluded:\t Yes\n", Information { excluded: true, ..all.clone() }),
            ("old exclusion", "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nBus Location: 0000:3b:00.0\nDevice Minor: 3\nBlacklisted: Yes\n", Information { excluded: true, ..all.clone() }),
            ("not started",   "Model: NVIDIA L4\nGPU UUID: GPU-????????-????-????-????-????????????\nBus Location: 0000:3b:00.0\nDevice Minor: 3\n", Information { uuid: None, ..all.clone() }),
            ("no minor",      "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nBus Location: 0000:3b:00.0\nDevice Minor: N/A\n", Information { minor: None, ..all.clone() }),
        ] {
            assert_eq!(parse(text), Some(expected), "{case}");
        }
    }

    #[test]
    fn rejects() {
        for text in ["", "\n", "no label\n", "Name: eth0\n", "\0\0"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn the_version_is_found_behind_words_that_change() {
        for (case, text, expected) in [
            ("closed",       "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 17 22:55:48 UTC 2024\nGCC version:  gcc version 12.2.0 (Debian)\n", Some("535.161.08")),
            ("open",         "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (archive@x.y)  Tue Mar  5 2024\n", Some("550.54.15")),
            ("old",          "NVRM version: NVIDIA UNIX x86_64 Kernel Module  384.81  Sat Sep  2 02:43:11 PDT 2017\n", Some("384.81")),
            ("no driver's",  "GCC version:  gcc version 12.2.0\n", None),
            ("no version",   "NVRM version: NVIDIA UNIX x86_64 Kernel Module\n", None),
        ] {
            assert_eq!(version(text).as_deref(), expected, "{case}");
        }
    }
}
