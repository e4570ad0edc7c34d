//! The names of the sources, as `--source` takes and prints them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The largest N of `simulated:N`: far more than a coordination file is designed for, and still created within a second.
const MOST_SIMULATED: u32 = 1_000_000;

/// Where an inventory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The first of [`Probe::AUTO`] that answers, unless there are GPUs of two vendors.
    Auto,
    /// This one and no other.
    Probe(Probe),
    File(PathBuf),
    Simulated(u32),
}

/// A source that looks at the host: it can be absent, broken or slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    Nvml,
    NvidiaSmi,
    Procfs,
    Sysfs,
    AmdSmi,
    RocmSmi,
}

impl Probe {
    /// All of them, in the order in which `auto` asks.
    pub(super) const AUTO: [Probe; 6] =
        [Probe::Nvml, Probe::NvidiaSmi, Probe::Procfs, Probe::Sysfs, Probe::AmdSmi, Probe::RocmSmi];

    pub(super) fn name(self) -> &'static str {
        match self {
            Probe::Nvml => "nvml",
            Probe::NvidiaSmi => "nvidia-smi",
            Probe::Procfs => "procfs",
            Probe::Sysfs => "sysfs",
            Probe::AmdSmi => "amd-smi",
            Probe::RocmSmi => "rocm-smi",
        }
    }

    pub(super) fn vendor(self) -> Vendor {
        match self {
            Probe::Nvml | Probe::NvidiaSmi | Probe::Procfs => Vendor::Nvidia,
            Probe::Sysfs | Probe::AmdSmi | Probe::RocmSmi => Vendor::Amd,
        }
    }
}

/// Whose GPUs a source looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Nvidia,
    Amd,
}

impl Vendor {
    const ALL: [Vendor; 2] = [Vendor::Nvidia, Vendor::Amd];

    /// The vendor whose devices `source` names; `None` if it may describe devices of any kind.
    pub(crate) fn of(source: &str) -> Option<Vendor> {
        Probe::AUTO.into_iter().find(|probe| probe.name() == source).map(Probe::vendor)
    }

    /// Its sources, in the order in which they are asked.
    pub(super) fn probes(self) -> Vec<Probe> {
        Probe::AUTO.into_iter().filter(|probe| probe.vendor() == self).collect()
    }

    /// Its name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Vendor::Nvidia => "NVIDIA",
            Vendor::Amd => "AMD",
        }
    }
}

impl FromStr for Vendor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let vendor = Vendor::ALL.into_iter().find(|vendor| vendor.to_string() == text);
        vendor.ok_or_else(|| "it takes nvidia or amd".to_owned())
    }
}

/// As `--vendor` takes it.
impl fmt::Display for Vendor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name().to_ascii_lowercase())
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Source::Auto);
        }
        if let Some(probe) = Probe::AUTO.into_iter().find(|probe| probe.name() == text) {
            return Ok(Source::Probe(probe));
        }
        match text.split_once(':').unwrap_or((text, "")) {
            ("file", "") => Err("`file` needs a path, as in file:/etc/devices.json".to_owned()),
            ("file", path) => Ok(Source::File(path.into())),
            ("simulated", count) => simulated(count),
            _ => Err(format!("`{text}` is not a source; known are {}", known())),
        }
    }
}

/// Digits only: `u32::from_str` takes a sign.
fn simulated(count: &str) -> Result<Source, String> {
    let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
    let count = count.parse().ok().filter(|count| is_number && *count <= MOST_SIMULATED);
    count.map(Source::Simulated).ok_or_else(|| {
        format!("`simulated` needs a number of devices from 0 to {MOST_SIMULATED}, as in simulated:8")
    })
}

fn known() -> String {
    let probes = Probe::AUTO.map(Probe::name).join(", ");
    format!("auto, {probes}, file:PATH, simulated:N")
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Auto => out.write_str("auto"),
            Source::Probe(probe) => out.write_str(probe.name()),
            Source::File(path) => write!(out, "file:{}", path.display()),
            Source::Simulated(count) => write!(out, "simulated:{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_prints_what_it_parsed() {
        for text in [
            "auto",
            "nvml",
            "nvidia-smi",
            "procfs",
            "sysfs",
            "amd-smi",
            "rocm-smi",
            "file:/a b:c.json",
            "file:relative",
            "simulated:0",
            "simulated:1000000",
        ] {
            assert_eq!(text.parse::<Source>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn a_vendor_has_sources() {
        for vendor in Vendor::ALL {
            assert_eq!(vendor.to_string().parse(), Ok(vendor));
            assert_eq!(Vendor::of(vendor.probes()[0].name()), Some(vendor));
        }
        assert_eq!(Vendor::of("simulated:8"), None);
        assert!("AMD".parse::<Vendor>().is_err());
    }

    #[test]
    #[rustfmt::skip] // a table
    fn rejects() {
        for (text, says) in [
            ("",                  "known are auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N"),
            ("nvidia",            "`nvidia` is not a source"),
            ("Auto",              "`Auto` is not a source"),
            ("procfs:",           "`procfs:` is not a source"),
            ("file",              "`file` needs a path"),
            ("file:",             "`file` needs a path"),
            ("simulated",         "needs a number of devices"),
            ("simulated:",        "needs a number of devices"),
            ("simulated:-1",      "needs a number of devices"),
            ("simulated:+1",      "needs a number of devices"),
            ("simulated:1.5",     "needs a number of devices"),
            ("simulated:1000001", "from 0 to 1000000"),
            ("simulated:99999999999999999999", "from 0 to 1000000"),
        ] {
            let problem = text.parse::<Source>().expect_err(text);
            assert!(problem.contains(says), "{text}: {problem}");
        }
    }
}
