//! The capabilities of processes (capabilities(7)).

use super::Host;
use super::file;
use crate::error::Error;

/// The capabilities that isolation needs; the numbers are the kernel's (`include/uapi/linux/capability.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin = 12,
    SysAdmin = 21,
    /// Since Linux 5.8; before that a part of `SysAdmin`.
    Bpf = 39,
}

/// The effective capabilities of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    bits: u64,
    /// Whether they apply to the machine, and not only to a user namespace.
    pub(crate) is_of_initial_namespace: bool,
}

impl Capabilities {
    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.bits & (1 << capability as u64) != 0
    }

    #[cfg(test)]
    pub(crate) fn of(capabilities: &[Capability], is_of_initial_namespace: bool) -> Capabilities {
        let bits = capabilities.iter().fold(0, |bits, capability| bits | 1 << *capability as u64);
        Capabilities { bits, is_of_initial_namespace }
    }
}

/// `CapEff` of `/proc/PID/status`.
fn parse(status: &str) -> Option<u64> {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

/// `/proc/PID/uid_map` of user_namespaces(7): the initial namespace maps every id to itself.
fn is_initial(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

impl Host {
    pub(crate) fn own_capabilities(&self) -> Result<Capabilities, Error> {
        self.capabilities_of("self")
    }

    /// `process`: a pid or `self`.
    pub(crate) fn capabilities_of(&self, process: &str) -> Result<Capabilities, Error> {
        let read = |name: &str| {
            let path = self.proc(process).join(name);
            file::read_text(&path).map_err(Error::io("read", path))
        };
        let status = read("status")?;
        let problem = || Error::File {
            path: self.proc(process).join("status"),
            problem: "names no effective capabilities".to_owned(),
        };
        let bits = parse(&status).ok_or_else(problem)?;
        Ok(Capabilities { bits, is_of_initial_namespace: is_initial(&read("uid_map")?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits_of_a_number() {
        let status = "Name:\tx\nCapInh:\tffff\nCapPrm:\t0\nCapEff:\t0000008000201000\nCapBnd:\t0\n";
        let capabilities = Capabilities { bits: parse(status).unwrap(), is_of_initial_namespace: true };
        for capability in [Capability::NetAdmin, Capability::SysAdmin, Capability::Bpf] {
            assert!(capabilities.has(capability), "{capability:?}");
        }
        assert_eq!(parse("CapEff:\tx\n"), None);
        assert_eq!(
            capabilities,
            Capabilities::of(&[Capability::NetAdmin, Capability::SysAdmin, Capability::Bpf], true)
        );
    }

    #[test]
    #[rustfmt::skip] // a table
    fn the_initial_user_namespace_maps_every_id_to_itself() {
        for (map, initial) in [
            ("         0          0 4294967295\n", true),
            ("         0       1000          1\n", false),
            ("         0          0      65536\n", false),
            ("",                                   false),
        ] {
            assert_eq!(is_initial(map), initial, "{map}");
        }
    }
}
