//! Which boot this is, and when it began.
//!
//! Both can prove an owner dead, so each is `None` where it could be wrong.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::libc::O_PATH;
use nix::time::{ClockId, clock_gettime};

use super::Host;
use super::file;
use super::namespace::ticks_per_second;

/// The digits of `/proc/sys/kernel/random/boot_id`.
pub(crate) fn parse_boot_id(text: &str) -> Option<String> {
    let digits: String = text.trim_ascii().chars().filter(|digit| *digit != '-').collect();
    let is_id = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| digits.to_ascii_lowercase())
}

/// The `btime` of `/proc/stat`: seconds since the epoch.
pub(crate) fn parse_btime(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

impl Host {
    /// 32 hexadecimal digits, or `None` if they are not the kernel's own: systemd-nspawn and LXC mount a file of their
    /// own over the kernel's.
    pub(crate) fn boot_id(&self) -> Option<&str> {
        self.found.boot_id.get_or_init(|| self.read_boot_id()).as_deref()
    }

    /// A time not later than the boot by any clock that this boot has had: clocks are stepped, and machines are restored
    /// from snapshots. `None` where it cannot be known, and in a pid namespace below the initial one.
    pub(crate) fn boot_began(&self) -> Option<SystemTime> {
        *self.found.began.get_or_init(|| self.read_began())
    }

    /// How long a process has been running that started at `start` (clock ticks in the initial time namespace).
    pub(crate) fn age(&self, start: u64) -> Option<Duration> {
        let uptime = file::read_piece(self.proc("uptime")).ok()?;
        let uptime = str::from_utf8(&uptime).ok()?;
        let seconds =
            Duration::try_from_secs_f64(uptime.split_ascii_whitespace().next()?.parse().ok()?).ok()?;
        seconds.checked_sub(since_boot(start.checked_add_signed(self.time_offset()?)?)?)
    }

    /// The earliest time at which a process can have started, by the clock that the boot began with.
    pub(crate) fn started(&self, start: u64) -> Option<SystemTime> {
        self.boot_began()?.checked_add(since_boot(start)?)
    }

    /// The same by the present clock: not earlier than [`Host::started`], and cheaper, since no mounts are read.
    pub(crate) fn started_at_the_latest(&self, start: u64) -> Option<SystemTime> {
        self.btime()?.checked_add(since_boot(start)?)
    }

    /// The difference between the two clocks that say when the boot began.
    pub(crate) fn clocks_apart(&self) -> Option<Duration> {
        self.btime()?.duration_since(self.boot_began()?).ok()
    }

    fn read_boot_id(&self) -> Option<String> {
        const NAME: &str = "sys/kernel/random/boot_id";
        let path = self.proc(NAME);
        let text = match self.open_uncovered(NAME) {
            Some(file) => file::read_line(&file),
            None if self.is_covered(NAME)? => return None,
            None => file::read_piece(&path),
        };
        parse_boot_id(str::from_utf8(&self.noted(&path, text)?).ok()?)
    }

    /// Opens a file of `/proc` if the kernel guarantees that nothing is mounted on the way to it. It does not before
    /// Linux 5.6, nor where `/proc/sys` is mounted again, as in a container; then the list of mounts has to be read.
    fn open_uncovered(&self, name: &str) -> Option<File> {
        if !self.is_here() {
            return None;
        }
        let proc = OpenOptions::new().read(true).custom_flags(O_PATH).open(self.proc("")).ok()?;
        let how = OpenHow::new().flags(OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_XDEV);
        openat2(proc, name, how).map(File::from).ok()
    }

    fn is_covered(&self, name: &str) -> Option<bool> {
        let path = Path::new("proc").join(name);
        Some(self.mounts()?.list.iter().any(|mount| mount.point.ends_with(&path)))
    }

    /// When the boot began by the present clock, in whole seconds.
    fn btime(&self) -> Option<SystemTime> {
        *self.found.btime.get_or_init(|| self.read_btime())
    }

    fn read_btime(&self) -> Option<SystemTime> {
        // The same value is in `/proc/stat`, which is expensive: the kernel writes the counters of each processor first.
        let seconds = if self.is_here() {
            clock_btime()?
        } else {
            parse_btime(&file::read_text(self.proc("stat")).ok()?)?
        };
        // Both are relative to our time namespace, like every time in /proc.
        let offset = self.time_offset()?.checked_div(ticks_per_second())?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.checked_add_signed(offset)?))
    }

    fn read_began(&self) -> Option<SystemTime> {
        if !self.is_initial_pid_namespace() {
            return None;
        }
        // Only a devtmpfs is as old as the boot: a container with the host's pid namespace has a younger /dev.
        let is_devtmpfs =
            self.mounts()?.covering(Path::new("/dev")).is_some_and(|mount| mount.kind == "devtmpfs");
        let birth = fs::metadata(self.dev("")).and_then(|dev| dev.created()).ok().filter(|_| is_devtmpfs)?;
        Some(birth.min(self.btime()?))
    }
}

/// How long after the boot a process started, from clock ticks.
fn since_boot(start: u64) -> Option<Duration> {
    let ticks = u64::try_from(ticks_per_second()).ok()?;
    Some(Duration::from_millis(start.checked_mul(1000)?.checked_div(ticks)?))
}

/// The second in which the boot began: the difference between the clocks that count from the epoch and from the boot.
fn clock_btime() -> Option<u64> {
    // In this order: time that passes between the calls makes the result earlier, not later.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    Some(now.checked_sub(since_boot.into())?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, BOOT, Tree};
    use super::*;

    fn seconds(since_the_epoch: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(since_the_epoch)
    }

    #[test]
    fn a_boot_id_has_32_digits() {
        let digits = Some(BOOT.to_owned());
        for text in ["01234567-89ab-cdef-0123-456789abcdef\n", BOOT, &BOOT.to_uppercase()] {
            assert_eq!(parse_boot_id(text), digits, "{text}");
        }
        for text in ["", "\n", "01234567-89ab-cdef-0123-456789abcde", "x1234567-89ab-cdef-0123-456789abcdef"]
        {
            assert_eq!(parse_boot_id(text), None, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_boot_id_counts_only_if_it_is_the_kernels() {
        let covered = "1 0 0:9 /run/host /proc/sys/kernel/random/boot_id ro - tmpfs tmpfs rw\n";
        let read_only = "1 0 0:9 /sys /proc/sys ro - proc proc rw\n";
        for (case, tree, id) in [
            ("the kernel's",                  Tree::new(),                                        Some(BOOT)),
            ("a container's file over it",    Tree::new().file("proc/self/mountinfo", covered),   None),
            ("the kernel's, made read-only",  Tree::new().file("proc/self/mountinfo", read_only), Some(BOOT)),
            ("the mounts cannot be read",     Tree::new().without("proc/self/mountinfo"),         None),
            ("none",                          Tree::new().without("proc/sys/kernel/random/boot_id"), None),
        ] {
            assert_eq!(tree.host().boot_id(), id, "{case}");
        }
    }

    #[test]
    fn a_boot_began_at_the_earlier_of_two_times() {
        let btime =
            |seconds: u64| Tree::new().file("proc/stat", format!("cpu 1 2\nbtime {seconds}\nprocesses 5\n"));
        assert_eq!(btime(1_000).host().boot_began(), Some(seconds(1_000)));
        let tree = btime(9_000_000_000);
        let birth = fs::metadata(tree.path("dev")).unwrap().created().ok();
        assert_eq!(tree.host().boot_began(), birth, "the clock has been stepped since");
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_boot_that_cannot_be_dated_is_not() {
        let dated = || Tree::new().file("proc/stat", "btime 1000\n");
        for (case, tree, is_dated) in [
            ("the initial pid namespace",       dated(), true),
            ("another one",                     dated().link("proc/1/ns/pid", "pid:[5]"), false),
            ("no btime",                        dated().file("proc/stat", "cpu 1\n"), false),
            ("a container's /dev",              dated().file("proc/self/mountinfo", "1 0 0:9 / /dev rw - tmpfs x rw\n1 0 0:8 / / rw - ext4 x rw\n"), false),
            ("no /dev",                         dated().without("dev"), false),
            ("the mounts cannot be read",       dated().without("proc/self/mountinfo"), false),
            ("a time namespace without offset", dated().link("proc/self/ns/time", "time:[5]"), false),
        ] {
            assert_eq!(tree.host().boot_began().is_some(), is_dated, "{case}");
        }
    }

    #[test]
    fn a_boot_is_dated_as_in_the_initial_time_namespace() {
        let tree = Tree::new()
            .file("proc/stat", "btime 1000\n")
            .link("proc/self/ns/time", "time:[5]")
            .link("proc/self/ns/time_for_children", "time:[5]")
            .file("proc/self/timens_offsets", "boottime -300 0\n");
        assert_eq!(tree.host().boot_began(), Some(seconds(700)));
        assert_eq!(tree.host().started(2_050), Some(seconds(720) + Duration::from_millis(500)));
    }

    #[test]
    fn an_age_is_counted_from_the_start() {
        let tree = Tree::new().file("proc/uptime", "100.50 7.00\n");
        assert_eq!(tree.host().age(9_000), Some(Duration::from_millis(10_500)));
        assert_eq!(tree.host().age(99_000), None, "a container's own uptime");
        let ahead = tree
            .link("proc/self/ns/time", "time:[5]")
            .link("proc/self/ns/time_for_children", "time:[5]")
            .file("proc/self/timens_offsets", "boottime 50 0\n");
        assert_eq!(ahead.host().age(4_000), Some(Duration::from_millis(10_500)));
    }

    #[test]
    fn this_boot_began_before_this_process() {
        let here = Host::new(Path::new("/"));
        let start = here.process(std::process::id()).unwrap().unwrap().start.unwrap();
        assert!(here.age(start).unwrap() < Duration::from_secs(3600));
        match here.started(start) {
            Some(started) => assert!(started <= SystemTime::now()),
            None => {
                fixture::skip("this_boot_began_before_this_process", "the boot of this host cannot be dated")
            }
        }
    }

    #[test]
    fn the_clocks_tell_what_the_kernel_writes() {
        let written = parse_btime(&fs::read_to_string("/proc/stat").unwrap()).unwrap();
        let told = clock_btime().unwrap();
        assert!(told.abs_diff(written) <= 1, "{told} and {written}");
    }

    #[test]
    fn this_boot_has_the_id_that_the_kernel_tells() {
        let written = parse_boot_id(&fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap());
        assert_eq!(Host::new(Path::new("/")).boot_id(), written.as_deref());
    }
}
