//! The privileges that confining a process requires, checked before anything is changed, so that the message names
//! everything that is missing.

use crate::cgroup::membership::Version;
use crate::error::Error;
use crate::host::Host;
use crate::host::capability::{Capabilities, Capability};

/// Fails with what is missing.
pub(super) fn check(host: &Host, version: Version) -> Result<(), Error> {
    let own = host.own_capabilities()?;
    match missing(&own, version) {
        None => Ok(()),
        Some(missing) => Err(Error::Isolation(format!(
            "isolation by cgroup {version} requires {missing}; run gpu-coord as root, in a systemd unit as \
             `ExecStart=+/usr/bin/gpu-coord exec AMOUNT --cgroup --user NAME -- COMMAND`"
        ))),
    }
}

fn missing(own: &Capabilities, version: Version) -> Option<&'static str> {
    let has = |capability| own.has(capability);
    let is_enough = has(Capability::SysAdmin)
        || (version == Version::V2 && has(Capability::Bpf) && has(Capability::NetAdmin));
    match version {
        _ if !own.is_of_initial_namespace => {
            Some("root's privileges in the initial user namespace, in which this process is not")
        }
        _ if is_enough => None,
        Version::V1 => Some("CAP_SYS_ADMIN, which this process does not have"),
        Version::V2 => Some("CAP_SYS_ADMIN, or CAP_BPF and CAP_NET_ADMIN, which this process does not have"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn what_is_missing_is_named() {
        use Capability::{Bpf, NetAdmin, SysAdmin};
        for (has, version, is_enough) in [
            (&[SysAdmin][..],      Version::V1, true),
            (&[SysAdmin],          Version::V2, true),
            (&[Bpf, NetAdmin],     Version::V2, true),
            (&[Bpf, NetAdmin],     Version::V1, false),
            (&[Bpf],               Version::V2, false),
            (&[NetAdmin],          Version::V2, false),
            (&[],                  Version::V1, false),
        ] {
            let own = Capabilities::of(has, true);
            assert_eq!(missing(&own, version).is_none(), is_enough, "{has:?} {version}");
            assert!(missing(&Capabilities::of(has, false), version).is_some(), "in a user namespace");
        }
    }
}
