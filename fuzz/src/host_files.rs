//! What the kernel and the administrator write: `/proc/PID/stat` and its kin, mounts, control groups, tables.

use std::fmt::{Debug, Display};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use crate::cgroup::membership::{self, Version};
use crate::cgroup::namesake::Namesake;
use crate::cgroup::v1;
use crate::host::mounts::{self, Mount, Mounts};
use crate::host::{account, boot, capability, namespace, node, process};
use crate::inventory::{Source, Vendor};
use crate::{assert_shown, device, lossy};

pub(crate) fn stat(bytes: &[u8]) {
    let Some(read) = process::parse_stat(bytes) else { return };
    if read.state.is_ascii() {
        let process::Process { pid, name, state, parent, session, threads, start, is_thread } = &read;
        let (state, start) = (char::from(*state), start.unwrap_or_default());
        let signal = if *is_thread { -1 } else { 17 };
        let zeros = "0 ".repeat(13);
        let line = format!(
            "{pid} ({name}) {state} {parent} 0 {session} {zeros}{threads} 0 {start} {zeros}0 0 {signal}\n"
        );
        assert_eq!(process::parse_stat(line.as_bytes()), Some(read), "{line:?}");
    }
}

pub(crate) fn status(bytes: &[u8]) {
    let text = lossy(bytes);
    let _ = (capability::parse(&text), namespace::parse_offset(&text, 100), boot::parse_btime(&text));
    let Some(read) = process::parse_status(bytes) else { return };
    let process::Status { uid, pids } = &read;
    let pids: String = pids.iter().map(|pid| format!("\t{pid}")).collect();
    let text = format!("Uid:\t0\t{uid}\t0\t0\nNSpid:{pids}\n");
    assert_eq!(process::parse_status(text.as_bytes()), Some(read), "{text:?}");
}

pub(crate) fn cgroup(bytes: &[u8]) {
    let text = lossy(bytes);
    for version in [Version::V1, Version::V2] {
        let Some(path) = membership::parse(&text, version) else { continue };
        let line = if version == Version::V1 { format!("5:devices:{path}") } else { format!("0::{path}") };
        assert_eq!(membership::parse(&line, version), Some(path));
        let name = path.rsplit('/').next().unwrap_or_default();
        if let Some(namesake) = Namesake::parse(name) {
            assert_eq!(Namesake::parse(&namesake.to_string()), Some(namesake));
        }
    }
    let _ = v1::parse(&text);
}

/// As many looks at a mount as take no time: of few mounts, all are looked for.
const MOST_LOOKS: usize = 1_000_000;

pub(crate) fn mountinfo(bytes: &[u8]) {
    let read = mounts::parse(bytes);
    let lines: Vec<u8> = read.list.iter().flat_map(line).collect();
    assert_eq!(mounts::parse(&lines), read, "{}", lines.escape_ascii());
    let empty = Mounts::default();
    // For each of them, all are looked at.
    for mount in read.list.iter().take(MOST_LOOKS / (read.list.len() + 1)) {
        let found = read.covering(&mount.point).map(|found| found.point.as_os_str().len());
        assert!(found >= Some(mount.point.as_os_str().len()), "{:?} does not cover itself", mount.point);
        let _ = (mount.is_network(), mount.is_local_disk(), mount.is_container_root());
        let _ = read.is_private(&mount.point.join("x"), || Some(empty.clone()));
        for version in [Version::V1, Version::V2] {
            let _ = membership::directories(&read, version, &mount.root.join("x"));
        }
    }
}

/// As the kernel writes it.
fn line(mount: &Mount) -> Vec<u8> {
    let octal = |path: &Path| -> Vec<u8> {
        let byte = |byte: &u8| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            byte => vec![*byte],
        };
        path.as_os_str().as_bytes().iter().flat_map(byte).collect()
    };
    let Mount { device, root, point, follows, kind, options } = mount;
    let tag = if *follows { " master:1" } else { "" };
    let [root, point] = [root, point].map(|path| octal(path));
    [
        format!("1 1 {device} ").as_bytes(),
        &root,
        b" ",
        &point,
        format!(" rw{tag} - {kind} none {options}\n").as_bytes(),
    ]
    .concat()
}

/// `/etc/passwd`, `/proc/devices` and others, and single words that name things.
pub(crate) fn tables(bytes: &[u8]) {
    let text = lossy(bytes);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let _ = (account::parse(first, rest, rest), node::parse_majors(&text), node::parse_capabilities(&text));
    let _ = (namespace::parse_link(first), boot::parse_boot_id(first));
    prints_back::<Source>(first);
    prints_back::<device::PciAddress>(first);
    prints_back::<node::NodeNumber>(first);
    prints_back::<Vendor>(first);
    prints_back::<Version>(first);
    if let Some(uuid) = device::uuid(first) {
        assert_eq!(uuid, first);
        assert_shown(&uuid);
    }
}

/// Not always as it was written: `simulated:007`.
fn prints_back<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse::<T>().ok(), Some(value), "{text}");
    }
}
