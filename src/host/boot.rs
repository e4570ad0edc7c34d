//! Which boot this is, and when it began.
//!
//! Both serve to call an owner dead, so each is `None` where it could be wrong.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Host;
use super::namespace::ticks_per_second;

/// This boot of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Boot {
    /// 32 hexadecimal digits, or `None` if they are not the kernel's own: systemd-nspawn and LXC mount a file
    /// of theirs over them.
    pub(crate) id: Option<String>,
    /// Not later than the boot, by every clock that this boot may have had: clocks are stepped, and machines are restored
    /// from snapshots. `None` where it cannot be told, and in a pid namespace below the initial one.
    pub(crate) began: Option<SystemTime>,
}

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
    pub(crate) fn boot(&self) -> &Boot {
        self.found.boot.get_or_init(|| Boot { id: self.boot_id(), began: self.began() })
    }

    /// How long a process has run that started at `start`, in ticks of the initial time namespace.
    pub(crate) fn age(&self, start: u64) -> Option<Duration> {
        let uptime = fs::read_to_string(self.proc("uptime")).ok()?;
        let seconds = Duration::try_from_secs_f64(uptime.split_ascii_whitespace().next()?.parse().ok()?).ok()?;
        let ticks = u64::try_from(ticks_per_second()).ok()?;
        let start = start.checked_add_signed(self.time_offset()?)?;
        seconds.checked_sub(Duration::from_millis(start.checked_mul(1000)?.checked_div(ticks)?))
    }

    /// When a process started at the earliest, by the clock that the boot began with.
    pub(crate) fn started(&self, start: u64) -> Option<SystemTime> {
        let ticks = u64::try_from(ticks_per_second()).ok()?;
        let since = Duration::from_millis(start.checked_mul(1000)?.checked_div(ticks)?);
        self.boot().began?.checked_add(since)
    }

    fn boot_id(&self) -> Option<String> {
        let path = Path::new("proc/sys/kernel/random/boot_id");
        let is_covered = self.mounts()?.list.iter().any(|mount| mount.point.ends_with(path));
        let text = fs::read_to_string(self.proc("sys/kernel/random/boot_id")).ok()?;
        parse_boot_id(&text).filter(|_| !is_covered)
    }

    fn began(&self) -> Option<SystemTime> {
        if !self.is_initial_pid_namespace() {
            return None;
        }
        // Only devtmpfs is as old as the boot: a container with the host's pids has a younger /dev of its own.
        let is_devtmpfs = self.mounts()?.covering(Path::new("/dev")).is_some_and(|mount| mount.kind == "devtmpfs");
        let birth = fs::metadata(self.dev("")).and_then(|dev| dev.created()).ok().filter(|_| is_devtmpfs)?;
        let seconds = parse_btime(&fs::read_to_string(self.proc("stat")).ok()?)?;
        // `btime` is given in our time namespace, like every other time in /proc.
        let offset = self.time_offset()?.checked_div(ticks_per_second())?;
        let seconds = seconds.checked_add_signed(offset)?;
        Some(birth.min(SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?))
    }
}
