//! The mounts of our namespace: what kind of file system the coordination file is on, and who else sees it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::Host;
use super::file;

/// One line of proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `major:minor`: two mounts of one file system have the same.
    pub(crate) device: String,
    /// The directory of the file system that is mounted.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    /// Whether it receives changes from a mount that it was copied from, usually in another mount namespace.
    pub(crate) follows: bool,
    /// The type of the file system.
    pub(crate) kind: String,
    /// The options of the file system. For a cgroup v1 hierarchy they include its controllers.
    pub(crate) options: String,
}

/// The mounts that can be reached from our root, in the order in which they were created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    pub(crate) list: Vec<Mount>,
}

/// Parses proc_pid_mountinfo(5). Malformed lines are left out.
pub(crate) fn parse(mountinfo: &[u8]) -> Mounts {
    Mounts { list: mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line).collect() }
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let (device, root, point, _options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    // Then comes any number of tags, all of which have to be consumed, and then `-`.
    let tags = fields.by_ref().take_while(|field| *field != b"-");
    let follows = tags.filter(|tag| tag.starts_with(b"master:")).count() > 0;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    Some(Mount {
        device: text(device),
        root: unescape(root),
        point: unescape(point),
        follows,
        kind: text(fields.next()?),
        options: fields.nth(1).map(text).unwrap_or_default(),
    })
}

/// Replaces `\` and three octal digits, as which blank, tab, newline and backslash are written.
fn unescape(mut field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    while let Some(at) = field.iter().position(|byte| *byte == b'\\') {
        let digits = field.get(at + 1..at + 4).and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.extend_from_slice(&field[..at]);
        path.push(byte.unwrap_or(b'\\'));
        field = &field[at + if byte.is_some() { 4 } else { 1 }..];
    }
    path.extend_from_slice(field);
    OsString::from_vec(path).into()
}

impl Mounts {
    /// The mount that `path` is on: the deepest one, and the last of several at the same point. The path must be
    /// absolute and without links and empty components.
    pub(crate) fn covering(&self, path: &Path) -> Option<&Mount> {
        let holding = self.list.iter().filter(|mount| mount.holds(path));
        // Of two directories above a path, the longer one is the deeper one.
        holding.max_by_key(|mount| mount.point.as_os_str().len())
    }

    /// Whether only one systemd unit sees a file at `path`. `of_init` reads the mounts of pid 1, if permitted.
    pub(crate) fn is_private(&self, path: &Path, of_init: impl FnOnce() -> Option<Mounts>) -> bool {
        let Some(mount) = self.covering(path) else { return false };
        mount.is_of_private_tmp() || (mount.kind == "tmpfs" && self.is_apart(mount, path, of_init()))
    }

    /// `PrivateTmp=disconnected` mounts a tmpfs that pid 1 does not have. An ordinary user cannot see the mounts of pid 1;
    /// then a mount was made for the unit if it follows none of the host's mounts while the root does.
    fn is_apart(&self, mount: &Mount, path: &Path, of_init: Option<Mounts>) -> bool {
        match of_init.as_ref().and_then(|mounts| mounts.covering(path)) {
            Some(of_init) => of_init.device != mount.device,
            None => !mount.follows && self.covering(Path::new("/")).is_some_and(|root| root.follows),
        }
    }
}

impl Mount {
    /// Like `Path::starts_with`, which splits both paths into components each time: a dozen times the work.
    fn holds(&self, path: &Path) -> bool {
        let point = self.point.as_os_str().as_bytes();
        let rest = path.as_os_str().as_bytes().strip_prefix(point);
        rest.is_some_and(|rest| point.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"))
    }

    /// Whether other hosts may write to it too: then its times are from other clocks, and locks cost a round trip.
    pub(crate) fn is_network(&self) -> bool {
        const KINDS: [&str; 19] = [
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ceph",
            "9p",
            "virtiofs",
            "lustre",
            "afs",
            "gpfs",
            "beegfs",
            "ocfs2",
            "gfs2",
            "glusterfs",
            "orangefs",
            "pvfs2",
            "coda",
            "vboxsf",
        ];
        // fuse.NAME is sshfs, glusterfs, cephfs, s3fs, ..., with this one exception.
        KINDS.contains(&self.kind.as_str())
            || (self.kind.starts_with("fuse.") && self.kind != "fuse.fuse-overlayfs")
    }

    /// Whether it is known to belong to this host alone and to outlast a boot.
    pub(crate) fn is_local_disk(&self) -> bool {
        const KINDS: [&str; 10] =
            ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "reiserfs"];
        KINDS.contains(&self.kind.as_str())
    }

    /// Whether it is the root file system of a container, which vanishes with the container and which nobody else sees.
    pub(crate) fn is_container_root(&self) -> bool {
        const KINDS: [&str; 3] = ["overlay", "fuse.fuse-overlayfs", "aufs"];
        self.point == Path::new("/") && KINDS.contains(&self.kind.as_str())
    }

    /// `PrivateTmp=yes` mounts `/var/tmp/systemd-private-BOOT-UNIT-RANDOM/tmp`.
    fn is_of_private_tmp(&self) -> bool {
        self.root
            .components()
            .any(|name| name.as_os_str().as_encoded_bytes().starts_with(b"systemd-private-"))
    }
}

impl Host {
    /// `None` if they cannot be read.
    pub(crate) fn mounts(&self) -> Option<&Mounts> {
        self.found.mounts.get_or_init(|| self.mounts_of("self")).as_ref()
    }

    /// The mount that a file at `path` is on, or would be on if it were created.
    pub(crate) fn mount_of(&self, path: &Path) -> Option<&Mount> {
        self.mounts()?.covering(&resolved(path)?)
    }

    /// Whether the file at `path` is a mount of its own.
    pub(crate) fn is_mounted_alone(&self, path: &Path) -> bool {
        let mounts = self.mounts().zip(fs::canonicalize(path).ok());
        mounts.is_some_and(|(mounts, path)| mounts.covering(&path).is_some_and(|mount| mount.point == path))
    }

    /// Whether a file at `path` is seen by one systemd unit only.
    pub(crate) fn is_private(&self, path: &Path) -> bool {
        let mounts = self.mounts().zip(resolved(path));
        mounts.is_some_and(|(mounts, path)| mounts.is_private(&path, || self.mounts_of("1")))
    }

    /// The mount option of `/proc` that hides processes from ordinary users, such as `hidepid=2`, if there is one.
    pub(crate) fn hides_processes(&self) -> Option<&str> {
        let proc = self.mounts()?.covering(Path::new("/proc")).filter(|mount| mount.kind == "proc")?;
        let hides = proc.options.split(',').find(|option| option.starts_with("hidepid="))?;
        (!matches!(hides, "hidepid=0" | "hidepid=off")).then_some(hides)
    }

    fn mounts_of(&self, process: &str) -> Option<Mounts> {
        let path = self.proc(process).join("mountinfo");
        self.noted(&path, file::read(&path)).map(|mountinfo| parse(&mountinfo))
    }
}

/// The path without links; the file need not exist.
fn resolved(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).or_else(|_| fs::canonicalize(directory(path))).ok()
}

/// The directory that holds `path`.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Tree;
    use super::*;

    const HOST: &str = "\
        22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw\n\
        27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        30 27 8:2 / /var rw shared:2 - xfs /dev/sdb rw\n\
        31 30 0:40 / /var/a\\040b\\134c rw - nfs4 server:/x rw\n\
        32 27 0:41 / /data rw - tmpfs none rw\n\
        33 27 0:42 / /data rw - ext4 /dev/sdc rw\n\
        junk\n\
        34 27 0:43 / /torn rw shared:9\n";

    /// In a unit: every mount follows the host's, but those that were made for the unit.
    const UNIT: &str = "27 1 254:0 / / rw shared:70 master:1 - ext4 /dev/vda rw\n";

    #[test]
    #[rustfmt::skip] // a table
    fn a_path_lies_on_the_deepest_mount() {
        for (path, kind) in [
            ("/", "ext4"), ("/home/x", "ext4"), ("/var", "xfs"), ("/var/tmp/f", "xfs"), ("/varnish", "ext4"),
            (r"/var/a b\c/f", "nfs4"), ("/torn/f", "ext4"), ("/proc/1", "proc"),
        ] {
            assert_eq!(parse(HOST.as_bytes()).covering(Path::new(path)).unwrap().kind, kind, "{path}");
        }
        let data = parse(HOST.as_bytes()).covering(Path::new("/data/f")).cloned();
        assert_eq!(data.unwrap().device, "0:42", "the later of two at one place");
        assert_eq!(parse(b"").covering(Path::new("/")), None);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn file_systems_are_known_by_their_kind() {
        for (kind, is_local_disk, is_network) in [
            ("ext4", true, false), ("xfs", true, false), ("btrfs", true, false), ("zfs", true, false),
            ("tmpfs", false, false), ("overlay", false, false), ("fuseblk", false, false), ("fuse.fuse-overlayfs", false, false),
            ("nfs", false, true), ("nfs4", false, true), ("cifs", false, true), ("9p", false, true),
            ("virtiofs", false, true), ("fuse.sshfs", false, true), ("fuse.glusterfs", false, true), ("ceph", false, true),
        ] {
            let mount = parse(format!("1 0 0:9 / / rw - {kind} x rw").as_bytes()).list.remove(0);
            assert_eq!((mount.is_local_disk(), mount.is_network()), (is_local_disk, is_network), "{kind}");
            assert_eq!(mount.is_container_root(), kind.ends_with("overlay") || kind.ends_with("overlayfs"), "{kind}");
        }
        let inner = parse(b"1 0 0:9 / /mnt rw - overlay x rw").list.remove(0);
        assert!(!inner.is_container_root(), "an overlay elsewhere");
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_units_private_directory_is_told_from_a_shared_one() {
        let private_tmp = "1 0 8:2 /tmp/systemd-private-0f-flink.service-Xy/tmp /var/tmp rw master:2 - ext4 x rw\n";
        let tmpfs = "1 0 0:77 / /var/tmp rw shared:71 - tmpfs tmpfs rw\n";
        let followed = "1 0 0:77 / /var/tmp rw shared:71 master:9 - tmpfs tmpfs rw\n";
        let other = "1 0 0:78 / /var/tmp rw shared:3 - tmpfs tmpfs rw\n";
        let bound = "1 0 8:9 /shared /var/tmp rw - ext4 x rw\n";
        let host = HOST.to_owned();
        for (case, own, of_init, is_private) in [
            ("on the host",                       host.clone(),                    Some(host.clone()),        false),
            ("PrivateTmp=yes",                    format!("{UNIT}{private_tmp}"),  None,                      true),
            ("disconnected, seen by root",        format!("{UNIT}{tmpfs}"),        Some(host.clone()),        true),
            ("disconnected, and the host has one", format!("{UNIT}{tmpfs}"),       Some(format!("{host}{other}")), true),
            ("the host's own tmpfs, in a unit",   format!("{UNIT}{followed}"),     Some(format!("{host}{tmpfs}")), false),
            ("the host's own tmpfs, on the host", format!("{host}{tmpfs}"),        Some(format!("{host}{tmpfs}")), false),
            ("disconnected, seen by a user",      format!("{UNIT}{tmpfs}"),        None,                      true),
            ("the host's own, seen by a user in a unit", format!("{UNIT}{followed}"), None,                   false),
            ("the host's own, seen by a user",    format!("{host}{tmpfs}"),        None,                      false),
            ("a directory that the unit was given",  format!("{UNIT}{bound}"),     Some(host.clone()),        false),
            ("in a unit without PrivateTmp",      UNIT.to_owned(),                 None,                      false),
        ] {
            let of_init = of_init.map(|text| parse(text.as_bytes()));
            let found = parse(own.as_bytes()).is_private(Path::new("/var/tmp/f"), || of_init);
            assert_eq!(found, is_private, "{case}");
        }
    }

    #[test]
    fn a_path_is_followed_to_its_mount() {
        let tree = Tree::new().file("real/f", "").link("link", "real");
        let real = fs::canonicalize(tree.path("real")).unwrap();
        let line = format!("1 0 0:9 / {} rw - nfs x rw\n", real.display());
        let tree = tree.file("proc/self/mountinfo", line);
        let kind = |path: &str| tree.host().mount_of(&tree.path(path)).map(|mount| mount.kind.clone());
        assert_eq!(kind("link/f").as_deref(), Some("nfs"));
        assert_eq!(kind("link/not-there-yet").as_deref(), Some("nfs"));
        assert_eq!(kind("other"), None);
    }
}
