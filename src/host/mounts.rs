//! The mounts of our namespace: what kind of file system the coordination file is on, and who sees it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::Host;

/// One line of proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `major:minor`: two mounts of one file system have the same.
    pub(crate) device: String,
    /// The directory of the file system that is mounted.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    /// Whether it was copied from a mount that it still follows: from another mount namespace, as a rule.
    pub(crate) follows: bool,
    /// The type of the file system.
    pub(crate) kind: String,
}

/// The mounts that can be reached from our root, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    pub(crate) list: Vec<Mount>,
}

/// Lines that are not of that form are left out.
pub(crate) fn parse(mountinfo: &[u8]) -> Mounts {
    Mounts { list: mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line).collect() }
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    // After the options of the mount come any number of tags, and then `-`.
    let dash = 6 + fields.get(6..)?.iter().position(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    Some(Mount {
        device: text(fields[2]),
        root: unescape(fields[3]),
        point: unescape(fields[4]),
        follows: fields[6..dash].iter().any(|tag| tag.starts_with(b"master:")),
        kind: text(fields.get(dash + 1)?),
    })
}

/// Blank, tab, newline and backslash are written as three octal digits.
fn unescape(mut field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    while let Some((first, rest)) = field.split_first() {
        let digits = rest.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(*first));
        field = if byte.is_some() { &rest[3..] } else { rest };
    }
    OsString::from_vec(path).into()
}

impl Mounts {
    /// The mount that `path` lies on: the deepest one, and of several at one place the last. The path is
    /// absolute and without links.
    pub(crate) fn covering(&self, path: &Path) -> Option<&Mount> {
        self.list
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.components().count())
    }

    /// Whether a file at `path` is seen by one systemd unit only. `of_init`: the mounts of pid 1, if they
    /// can be read.
    pub(crate) fn is_private(&self, path: &Path, of_init: Option<&Mounts>) -> bool {
        let Some(mount) = self.covering(path) else { return false };
        mount.is_of_private_tmp() || (mount.kind == "tmpfs" && self.is_apart(mount, path, of_init))
    }

    /// `PrivateTmp=disconnected` mounts a tmpfs that pid 1 does not have. An ordinary user cannot see the mounts
    /// of pid 1; then a mount was made for the unit if it follows none of the host's, as the root does.
    fn is_apart(&self, mount: &Mount, path: &Path, of_init: Option<&Mounts>) -> bool {
        match of_init.and_then(|mounts| mounts.covering(path)) {
            Some(of_init) => of_init.device != mount.device,
            None => !mount.follows && self.covering(Path::new("/")).is_some_and(|root| root.follows),
        }
    }
}

impl Mount {
    /// Whether other hosts write to it too, so that its times are of other clocks and its locks cost a
    /// round trip.
    pub(crate) fn is_network(&self) -> bool {
        const KINDS: [&str; 19] = [
            "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "virtiofs", "lustre", "afs", "gpfs", "beegfs",
            "ocfs2", "gfs2", "glusterfs", "orangefs", "pvfs2", "coda", "vboxsf",
        ];
        // A fuse.NAME is sshfs, glusterfs, cephfs, s3fs, ... with this one exception.
        KINDS.contains(&self.kind.as_str())
            || (self.kind.starts_with("fuse.") && self.kind != "fuse.fuse-overlayfs")
    }

    /// Whether it is known to belong to this host alone and to outlast a boot.
    pub(crate) fn is_local_disk(&self) -> bool {
        const KINDS: [&str; 10] =
            ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "reiserfs"];
        KINDS.contains(&self.kind.as_str())
    }

    /// Whether it is the root file system of a container, which ends with it and which no other sees.
    pub(crate) fn is_container_root(&self) -> bool {
        const KINDS: [&str; 3] = ["overlay", "fuse.fuse-overlayfs", "aufs"];
        self.point == Path::new("/") && KINDS.contains(&self.kind.as_str())
    }

    /// `PrivateTmp=yes` mounts `/var/tmp/systemd-private-BOOT-UNIT-RANDOM/tmp`.
    fn is_of_private_tmp(&self) -> bool {
        self.root.components().any(|name| name.as_os_str().as_encoded_bytes().starts_with(b"systemd-private-"))
    }
}

impl Host {
    /// `None` if they cannot be read.
    pub(crate) fn mounts(&self) -> Option<&Mounts> {
        self.found.mounts.get_or_init(|| self.mounts_of("self")).as_ref()
    }

    /// Whether a file at `path`, a resolved one, is seen by one systemd unit only.
    pub(crate) fn is_private(&self, path: &Path) -> bool {
        let Some(mounts) = self.mounts() else { return false };
        mounts.is_private(path, self.mounts_of("1").as_ref())
    }

    fn mounts_of(&self, process: &str) -> Option<Mounts> {
        fs::read(self.proc(process).join("mountinfo")).ok().map(|mountinfo| parse(&mountinfo))
    }
}
