//! What the kernel tells of a file's place in a call or two. The list of mounts (`mounts`) tells more, and to read it
//! takes as long as all the rest of an allocation on a host that has a few dozen of them.

#![expect(unsafe_code, reason = "statx(2) without waiting has no safe form")]

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, XFS_SUPER_MAGIC, fstatfs};

use super::Host;

/// Of this host alone, and they outlast a boot. ext2 and ext3 have the number of ext4.
const DISKS: [FsType; 3] = [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC];

/// openat2(2), `RESOLVE_CACHED`: fail where the kernel would have to wait for anybody.
const CACHED: u64 = 0x20;

impl Host {
    /// Whether a file is known to be on a disk of this host; `false`: ask the mounts.
    pub(crate) fn is_on_disk(&self, file: &File) -> bool {
        self.is_here() && is_disk(file)
    }

    /// Whether a file at `path` is, or would be, on the very file system that `/` is on, and that is a disk: then
    /// it is on no network, and nothing was mounted for a container or a unit on the way to it. Told without waiting
    /// for anything; `false`: ask the mounts.
    pub(crate) fn lies_on_root_disk(&self, path: &Path) -> bool {
        let Some(path) = std::path::absolute(path).ok().filter(|_| self.is_here()) else { return false };
        let found = match (within_root_mount(&path), path.parent()) {
            (Err(Errno::ENOENT), Some(parent)) => within_root_mount(parent),
            (found, _) => found,
        };
        found.is_ok_and(|found| is_disk_at_once(&found))
    }
}

/// Fails with EXDEV if another mount is on the way, with EAGAIN if the kernel does not know the way by heart or anything
/// is mounted there in another namespace (`__follow_mount_rcu` in the kernel's fs/namei.c), as a unit's private
/// `/var/tmp` is, and before Linux 5.12 with EINVAL or ENOSYS.
fn within_root_mount(path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
    openat2(AT_FDCWD, path, how.resolve(ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::from_bits_retain(CACHED)))
}

/// statfs(2) would wait for the server or the program that serves `/`, if one does.
fn is_disk_at_once(file: impl AsFd) -> bool {
    is_on_block_device(&file) && is_disk(file)
}

/// Not so with btrfs, which does not show its device.
fn is_on_block_device(file: impl AsFd) -> bool {
    const FLAGS: i32 = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the call reads an empty string and writes one such structure, which is ours.
    let result = unsafe { libc::statx(file.as_fd().as_raw_fd(), c"".as_ptr(), FLAGS, 0, found.as_mut_ptr()) };
    // SAFETY: it is made of numbers, and any bytes are such.
    let found = unsafe { found.assume_init() };
    result == 0 && found.stx_dev_major != 0
}

fn is_disk(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|found| DISKS.contains(&found.filesystem_type()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    use super::super::fixture::skip;
    use super::*;

    /// What the mounts say, and so the kernel, once it knows the way by heart.
    #[test]
    fn a_path_lies_on_the_root_disk_if_no_other_mount_is_on_the_way() {
        let here = Host::new(Path::new("/"));
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("/proc/version", at("link")).unwrap();
        for path in [
            at("file"),
            at("none"),
            at("none/below"),
            at("link"),
            "/proc/version".into(),
            "/etc/passwd".into(),
        ] {
            let _ = fs::metadata(&path);
            let exists = path.parent().is_some_and(Path::exists);
            let mount = here.mount_of(&path).filter(|_| exists);
            let is_disk = |kind: &str| matches!(kind, "ext2" | "ext3" | "ext4" | "xfs");
            let expected = mount.is_some_and(|mount| mount.point == Path::new("/") && is_disk(&mount.kind));
            let is_known = within_root_mount(&path).err() != Some(Errno::EAGAIN);
            let found = here.lies_on_root_disk(&path);
            assert_eq!(found, expected && (is_known || found), "{}", path.display());
        }
        let elsewhere = Host::new(Path::new("/tmp"));
        assert!(!elsewhere.lies_on_root_disk(&at("file")), "the mounts of another host");
    }

    #[test]
    fn a_block_device_is_told_without_waiting() {
        for path in ["/proc/version", "/dev/null", "/etc/passwd", "/"] {
            let file = File::open(path).unwrap();
            let device = file.metadata().unwrap().dev();
            assert_eq!(is_on_block_device(&file), nix::sys::stat::major(device) != 0, "{path}");
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
        let (point, kind) = (directory.path(), Some("fuse.hanging"));
        mount(Some("server"), point, kind, MsFlags::empty(), Some(options.as_str())).unwrap();
        let root = File::options().read(true).custom_flags(libc::O_PATH).open(point);
        umount2(point, MntFlags::MNT_DETACH).unwrap();
        let root = root.unwrap();
        let (told, is_told) = channel();
        let looker = std::thread::spawn(move || told.send(is_disk_at_once(&root)));
        let found = is_told.recv_timeout(Duration::from_secs(60));
        drop(server);
        looker.join().unwrap().unwrap();
        assert_eq!(found, Ok(false));
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
