//! Whether the processes that share the coordination file see the file at a path.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::Error;
use crate::host::Host;
use crate::host::mounts::{Mount, Mounts, directory};
use crate::notes::Notes;

/// The kernel gives up after more links (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// A file system that mounts another one on access, usually from a network.
const AUTOMOUNT: &str = "autofs";

/// Whether the file may be served by another host or by a program, so that accessing it may hang. Accesses nothing that
/// may hang.
pub(crate) fn may_hang(host: &Host, path: &Path) -> bool {
    if host.lies_on_root_disk(path) {
        return false;
    }
    let mounts = host.mounts().filter(|mounts| mounts.list.iter().any(can_hang));
    let absolute = || std::path::absolute(path).ok();
    mounts.is_some_and(|mounts| absolute().is_some_and(|path| leads_to_network(mounts, &path)))
}

fn can_hang(mount: &Mount) -> bool {
    mount.is_network() || mount.kind == AUTOMOUNT
}

/// Follows the path as the kernel does, up to the first component on a network. Reading a link does not access its
/// target.
fn leads_to_network(mounts: &Mounts, path: &Path) -> bool {
    let mut at = PathBuf::from("/");
    let mut ahead = reversed(path);
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        // An absolute target begins anew.
        at.push(name);
        if mounts.covering(&at).is_some_and(can_hang) {
            return true;
        }
        if let Ok(target) = fs::read_link(&at) {
            links += 1;
            if links > MOST_LINKS {
                return false;
            }
            at.pop();
            ahead.extend(reversed(&target));
        }
    }
    false
}

/// The components of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|name| *name != Component::CurDir);
    names.map(|name| name.as_os_str().to_owned()).collect()
}

/// Refuses a path that only this systemd unit sees, and warns of one that only this container sees.
pub(crate) fn check(host: &Host, path: &Path, notes: &mut Notes) -> Result<(), Error> {
    if host.lies_on_root_disk(path) {
        return Ok(());
    }
    let Ok(directory) = directory(path).canonicalize() else { return Ok(()) };
    // The file itself may be a mount point.
    let place = path.canonicalize().unwrap_or(directory);
    if host.is_private(&place) {
        let problem = "is private to this systemd unit (PrivateTmp=, DynamicUser=), so it coordinates \
                       with nothing outside; set PrivateTmp=no, or name a file in /run or /var/lib with \
                       --coordination-file"
            .to_owned();
        return Err(Error::File { path: path.to_owned(), problem });
    }
    let mount = host.mounts().and_then(|mounts| mounts.covering(&place));
    if mount.is_some_and(|mount| mount.is_container_root()) {
        notes.warn(format!(
            "{} is on this container's own file system, so it coordinates with nothing outside; mount the \
             host's file there",
            path.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::Tree;

    #[test]
    #[rustfmt::skip] // a table
    fn a_path_is_followed_to_the_first_name_on_a_network() {
        let tree = Tree::new().file("local/f", "").file("nfs/f", "").file("nfs/local/f", "").file("auto/f", "");
        let root = tree.path("").canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        let to_nfs = at("nfs");
        let tree = tree
            .link("absolute", to_nfs.to_str().unwrap())
            .link("relative", "./nfs")
            .link("local/up", "../nfs")
            .link("local/chain", "../relative/.")
            .link("local/file", "../nfs/not-there")
            .link("back", "nfs/../local")
            .link("to-local", "local/../local")
            .link("broken", "nowhere")
            .link("loop", "loop")
            .link("loop-to-nfs", "loop/../nfs")
            .link("link-0", "nfs");
        // From 40 on the kernel does not follow it either.
        let tree = (1..41).fold(tree, |tree, number| tree.link(&format!("link-{number}"), &format!("link-{}", number - 1)));
        let mount = |name: &str, kind: &str| format!("1 0 0:9 / {} rw - {kind} x rw\n", at(name).display());
        let mounts = ["27 1 8:1 / / rw - ext4 x rw\n".to_owned(), mount("nfs", "nfs4"), mount("nfs/local", "ext4"), mount("auto", "autofs")];
        let tree = tree.file("proc/self/mountinfo", mounts.concat());
        for (path, expected) in [
            ("local/f", false), ("local/new", false), ("new/f", false), ("nfs", true), ("nfs/f", true), ("nfs/new", true),
            ("absolute/f", true), ("absolute", true), ("relative/f", true), ("local/up/f", true), ("local/chain/f", true),
            ("local/file", true), ("local/../nfs/f", true), ("nfs/local/f", true), ("back/f", true), ("auto/f", true),
            ("to-local/f", false), ("broken/f", false), ("broken/../nfs/f", true), ("loop/f", false), ("loop-to-nfs", false),
            ("link-39/f", true), ("link-40/f", false),
        ] {
            assert_eq!(may_hang(&tree.host(), &at(path)), expected, "{path}");
        }
        let unknown = tree.without("proc/self/mountinfo");
        assert!(!may_hang(&unknown.host(), &at("nfs/f")));
    }
}
