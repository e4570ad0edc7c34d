//! The text of the KFD topology's files: `KEY VALUE` lines, all values decimal numbers.
//!
//! Keys come and go with the kernel's version, so one that is missing or no number loses itself alone.

use crate::device::PciAddress;

/// Memory of the card itself, within reach of the host's processor or not. The system's own is 0.
const LOCAL_HEAPS: [u64; 2] = [1, 2];

/// What the `properties` file of one node says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Properties {
    /// 0 for a processor.
    pub(super) simds: Option<u64>,
    /// As AMD's compiler names it: `gfx90a`.
    pub(super) architecture: Option<String>,
    /// Old kernels do not tell it.
    pub(super) domain: Option<u32>,
    location: Option<u64>,
    pub(super) render_minor: Option<u32>,
    /// The card's, and the same for all of its partitions.
    pub(super) unique_id: Option<u64>,
}

/// `None` if not one key is known: then it is no such file.
pub(super) fn parse(text: &str) -> Option<Properties> {
    let value = |key| value(text, key);
    let found = Properties {
        simds: value("simd_count"),
        architecture: value("gfx_target_version").filter(|version| *version > 0).map(architecture),
        domain: value("domain").and_then(|domain| u32::try_from(domain).ok()),
        location: value("location_id").filter(|location| *location > 0),
        render_minor: value("drm_render_minor")
            .filter(|minor| *minor > 0)
            .and_then(|minor| u32::try_from(minor).ok()),
        unique_id: value("unique_id").filter(|id| *id > 0),
    };
    (found != Properties::default()).then_some(found)
}

/// The size in bytes of one of a node's memory banks, if it is the card's own.
pub(super) fn local_bytes(text: &str) -> Option<u64> {
    value(text, "heap_type").filter(|heap| LOCAL_HEAPS.contains(heap))?;
    value(text, "size_in_bytes")
}

fn value(text: &str, key: &str) -> Option<u64> {
    let found = text.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == key);
    found?.1.trim().parse().ok()
}

/// 90010 is 9.0.10, which is written `gfx90a`.
fn architecture(version: u64) -> String {
    format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100)
}

impl Properties {
    /// The address of the device: of a partition, with its number as the function. `domain` if the kernel
    /// does not tell it.
    pub(super) fn address(&self, domain: u32) -> Option<PciAddress> {
        let location = self.location?;
        // Some versions of the driver write a partition's number above the address instead of into it.
        let partition = location >> 28;
        let part = |shift: u32, mask: u64| u8::try_from(location >> shift & mask).ok();
        Some(PciAddress {
            domain: self.domain.unwrap_or(domain),
            bus: part(8, 0xff)?,
            device: part(3, 0x1f)?,
            function: part(0, 0x7)? | u8::try_from(partition).ok().filter(|partition| *partition < 8)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn addresses() {
        for (case, text, domain, address) in [
            ("bus alone",             "location_id 17152\ndomain 0",          0, Some("0000:43:00.0")),
            ("a device number",       "location_id 776\ndomain 0",            0, Some("0000:03:01.0")),
            ("a partition",           "location_id 1283\ndomain 0",           0, Some("0000:05:00.3")),
            ("a partition, above",    "location_id 1342178560\ndomain 0",     0, Some("0000:05:00.5")),
            ("another domain",        "location_id 256\ndomain 65537",        0, Some("10001:01:00.0")),
            ("an old kernel",         "location_id 6400",                     2, Some("0002:19:00.0")),
            ("the kernel's domain",   "location_id 6400\ndomain 0",           2, Some("0000:19:00.0")),
            ("none",                  "location_id 0\ndomain 0\nsimd_count 1", 0, None),
            ("no such partition",     "location_id 2147484928\ndomain 0",     0, None),
            ("no number",             "location_id x\nsimd_count 1",          0, None),
        ] {
            let address = address.map(|address| address.parse().unwrap());
            assert_eq!(parse(text).expect(case).address(domain), address, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn architectures() {
        for (text, architecture) in [
            ("gfx_target_version 90010\nsimd_count 1",  Some("gfx90a")),
            ("gfx_target_version 90402\nsimd_count 1",  Some("gfx942")),
            ("gfx_target_version 110501\nsimd_count 1", Some("gfx1151")),
            ("gfx_target_version 100300\nsimd_count 1", Some("gfx1030")),
            ("gfx_target_version 0\nsimd_count 1",      None),
            ("simd_count 1",                            None),
        ] {
            assert_eq!(parse(text).unwrap().architecture.as_deref(), architecture, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_value_that_is_missing_loses_itself_alone() {
        for (case, text, expected) in [
            ("all",          "cpu_cores_count 0\nsimd_count 8\ndrm_render_minor 129\nunique_id 18446744073709551615", (Some(8), Some(129), Some(u64::MAX))),
            ("no minor",     "simd_count 8\ndrm_render_minor 0\nunique_id 1",                                         (Some(8), None,      Some(1))),
            ("no unique id", "simd_count 8\ndrm_render_minor 128\nunique_id 0",                                       (Some(8), Some(128), None)),
            ("too large",    "simd_count 99999999999999999999\ndrm_render_minor 128",                                 (None,    Some(128), None)),
            ("a longer key", "simd_count_x 8\ndrm_render_minor 128",                                                  (None,    Some(128), None)),
            ("a processor",  "cpu_cores_count 64\nsimd_count 0",                                                      (Some(0), None,      None)),
        ] {
            let Properties { simds, render_minor, unique_id, .. } = parse(text).expect(case);
            assert_eq!((simds, render_minor, unique_id), expected, "{case}");
        }
    }

    #[test]
    fn what_has_no_known_key_is_no_node() {
        for text in ["", "\n", "simd_count", "Model: X", "<html>"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn only_the_cards_own_memory_counts() {
        for (text, bytes) in [
            ("heap_type 1\nsize_in_bytes 17163091968\nflags 0\n", Some(17_163_091_968)),
            ("heap_type 2\nsize_in_bytes 4096",                   Some(4_096)),
            ("heap_type 0\nsize_in_bytes 4096",                   None),
            ("size_in_bytes 4096",                                None),
            ("heap_type 1",                                       None),
        ] {
            assert_eq!(local_bytes(text), bytes, "{text}");
        }
    }
}
