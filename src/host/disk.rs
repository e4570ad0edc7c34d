//! What a few system calls say about the file system of a file. The list of mounts (`mounts`) says more, but with a few
//! dozen mounts reading it takes as long as the rest of an allocation.

#![expect(unsafe_code, reason = "statx(2) without waiting has no safe form")]

use std::fs::File;
use std::mem::MaybeUninit;
use std::path::Path;

use nix::NixPath;
use nix::errno::Errno;
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, XFS_SUPER_MAGIC, fstatfs, statfs};

use super::Host;

/// File systems that belong to this host alone and outlast a boot. ext2 and ext3 have the number of ext4.
const DISKS: [FsType; 3] = [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC];

impl Host {
    /// Whether a file is known to be on a disk of this host; `false`: consult the mounts.
    pub(crate) fn is_on_disk(&self, file: &File) -> bool {
        self.is_here() && fstatfs(file).is_ok_and(|found| DISKS.contains(&found.filesystem_type()))
    }

    /// Whether a file at `path` is, or would be, on the same mount as `/`, and that is a disk: then it is not on a
    /// network, and nothing was mounted for a container or a systemd unit on the way to it. Waits for nothing but that
    /// disk; `false`: consult the mounts.
    pub(crate) fn lies_on_root_disk(&self, path: &Path) -> bool {
        let Some(path) = std::path::absolute(path).ok().filter(|_| self.is_here()) else { return false };
        let Ok(root) = Place::of(Path::new("/")) else { return false };
        root.is_block_device && root.is_all_the_way(&path) && is_root_disk()
    }
}

/// Where a path leads, as far as that is known without asking whoever serves its file system.
struct Place {
    /// The id of the mount, unique within this boot.
    mount: u64,
    /// False for NFS, FUSE and the like, and for btrfs, which does not show its device.
    is_block_device: bool,
    is_link: bool,
}

impl Place {
    /// Calls statx(2) without triggering automounts or following links. Fails before Linux 5.8, which reports no mount.
    fn of(path: &Path) -> nix::Result<Place> {
        const FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC;
        const WANTED: u32 = libc::STATX_TYPE | libc::STATX_MNT_ID;
        let mut found = MaybeUninit::<libc::statx>::zeroed();
        let result = path.with_nix_path(|path| {
            // SAFETY: the call reads a string and writes one such structure, which is ours.
            unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), FLAGS, WANTED, found.as_mut_ptr()) }
        })?;
        Errno::result(result)?;
        // SAFETY: the structure consists of numbers, for which any bytes are valid.
        let found = unsafe { found.assume_init() };
        if found.stx_mask & WANTED != WANTED {
            return Err(Errno::ENOSYS);
        }
        Ok(Place {
            mount: found.stx_mnt_id,
            is_block_device: found.stx_dev_major != 0,
            is_link: u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFLNK,
        })
    }

    /// Whether every component of `path` is on the same mount and not a link. Checked from the top, so nothing below
    /// another mount is ever looked at.
    fn is_all_the_way(&self, path: &Path) -> bool {
        let mut names: Vec<&Path> = path.ancestors().collect();
        names.pop(); // `/` itself
        for name in names.into_iter().rev() {
            match Place::of(name) {
                Ok(place) if place.mount == self.mount && !place.is_link => {}
                // Nothing can be below it.
                Err(Errno::ENOENT) => return true,
                _ => return false,
            }
        }
        true
    }
}

/// Only to be called for a block device: it could block on anything else.
fn is_root_disk() -> bool {
    statfs("/").is_ok_and(|found| DISKS.contains(&found.filesystem_type()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    use super::super::fixture::{Running, skip};
    use super::*;

    /// What the mounts say, but for links.
    #[test]
    fn a_path_lies_on_the_root_disk_if_no_other_mount_is_on_the_way() {
        let here = Host::new(Path::new("/"));
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("/proc", at("to-proc")).unwrap();
        symlink("file", at("to-file")).unwrap();
        let is_disk = |kind: &str| matches!(kind, "ext2" | "ext3" | "ext4" | "xfs");
        let is_root = |path: &Path| {
            let mount = here.mount_of(path);
            mount.is_some_and(|mount| mount.point == Path::new("/") && is_disk(&mount.kind))
        };
        for (path, expected) in [
            (at("file"), is_root(&at("file"))),
            (at("none"), is_root(&at("none"))),
            (at("none/below"), is_root(&at("none"))),
            (at("../file"), is_root(&at("file"))),
            (at("to-file"), false),
            (at("to-proc/version"), false),
            ("/proc/version".into(), false),
            ("/etc/passwd".into(), is_root(Path::new("/etc/passwd"))),
        ] {
            assert_eq!(here.lies_on_root_disk(&path), expected, "{}", path.display());
        }
        let elsewhere = Host::new(Path::new("/tmp"));
        assert!(!elsewhere.lies_on_root_disk(&at("file")), "the mounts of another host");
    }

    /// As for a unit with a private `/var/tmp`.
    #[test]
    fn what_is_mounted_for_others_is_no_matter() {
        if !nix::unistd::geteuid().is_root() {
            skip("what_is_mounted_for_others_is_no_matter", "it mounts a file system");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (here, path) = (Host::new(Path::new("/")), directory.path().join("file"));
        let before = here.lies_on_root_disk(&path);
        let script = "mount -t tmpfs none \"$0\" && stat -c %d \"$0\" && exec sleep 60";
        let point = directory.path().to_str().unwrap();
        let mut other = Running::start("unshare", &["-m", "sh", "-c", script, point]);
        assert_ne!(other.line(), fs::metadata(point).unwrap().dev().to_string(), "it is mounted there alone");
        assert_eq!(here.lies_on_root_disk(&path), before);
    }

    #[test]
    fn a_block_device_is_told() {
        for path in ["/proc/version", "/dev/null", "/etc/passwd", "/"] {
            let device = fs::symlink_metadata(path).unwrap().dev();
            let place = Place::of(Path::new(path)).unwrap();
            assert_eq!(place.is_block_device, nix::sys::stat::major(device) != 0, "{path}");
        }
    }

    /// A root is told of by what is known of it, while the program that serves it does not answer.
    #[test]
    fn who_serves_a_root_is_not_waited_for() {
        if !nix::unistd::geteuid().is_root() {
            skip("who_serves_a_root_is_not_waited_for", "it mounts a file system");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let server = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let point = directory.path().to_owned();
        let kind = Some("fuse.hanging");
        mount(Some("server"), &point, kind, MsFlags::empty(), Some(options.as_str())).unwrap();
        let (told, is_told) = channel();
        let root = point.clone();
        let looker =
            std::thread::spawn(move || told.send(Place::of(&root).map(|place| place.is_block_device)));
        let found = is_told.recv_timeout(Duration::from_secs(60));
        drop(server);
        looker.join().unwrap().unwrap();
        umount2(&point, MntFlags::MNT_DETACH).unwrap();
        assert_eq!(found, Ok(Ok(false)));
    }

    #[test]
    fn a_file_is_on_a_disk_or_not() {
        let here = Host::new(Path::new("/"));
        assert!(!here.is_on_disk(&File::open("/proc/version").unwrap()));
        let path = Path::new("/etc/passwd");
        let mount = here.mount_of(path).unwrap();
        assert!(!here.is_on_disk(&File::open(path).unwrap()) || mount.is_local_disk());
    }
}
