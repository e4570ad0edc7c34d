//! The coordination file, read by code that shares nothing with the program's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::host::Unit;

/// Who holds what.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// By the pid: a unit, and the start of the process, which a line of the script lacks.
    held: BTreeMap<u32, BTreeSet<(Unit, Option<u64>)>>,
    /// What lines of another pid namespace hold, and where in the file they are.
    pub(crate) elsewhere: BTreeMap<Unit, usize>,
    /// What lines of another boot hold.
    pub(crate) earlier: BTreeSet<Unit>,
    /// Devices.
    pub(crate) drained: BTreeSet<u32>,
    text: String,
}

/// How long somebody may keep the lock before those that were stopped are let go on.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);

/// The lock. `wake`: what lets whoever keeps it go on.
#[expect(clippy::disallowed_methods, reason = "the test is another process that locks the file")]
pub(crate) fn lock(path: &Path, kind: FlockArg, mut wake: impl FnMut()) -> Flock<File> {
    let mut file = File::options().read(true).write(true).open(path).unwrap();
    let since = Instant::now();
    loop {
        file = match Flock::lock(file, kind) {
            Ok(locked) => return locked,
            Err((file, Errno::EWOULDBLOCK)) => file,
            Err((_, error)) => panic!("{error}"),
        };
        if since.elapsed() > PATIENCE {
            wake();
        }
        thread::sleep(Duration::from_micros(100));
    }
}

impl Book {
    /// What is written while no writer is at work.
    pub(crate) fn read(path: &Path, wake: impl FnMut()) -> Book {
        Book::of(&lock(path, FlockArg::LockSharedNonblock, wake))
    }

    pub(crate) fn of(mut file: &File) -> Book {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Book::parse(text)
    }

    fn parse(text: String) -> Book {
        assert!(text.is_empty() || text.ends_with('\n'), "the last line has no end:\n{text}");
        let mut ended: BTreeSet<&str> = BTreeSet::new();
        for line in text.lines().filter(|line| line.starts_with('#')) {
            let pieces = line.split([';', '\t']);
            ended.extend(pieces.filter_map(|piece| piece.strip_prefix("grant=")).filter(|id| id.len() == 16));
        }
        let mut book = Book::default();
        let mut grants: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(drained) = line.strip_prefix("! ").and_then(|line| line.split('\t').next()) {
                book.drained.insert(drained.parse().unwrap());
                continue;
            }
            let Some(held) = Held::parse(line) else { panic!("{line:?} is no line:\n{text}") };
            if let Some((id, of)) = held.grant {
                if ended.contains(id) {
                    continue;
                }
                let (seen, said) = grants.entry(id).or_insert((0, of));
                *seen += 1;
                assert_eq!(*said, of, "grant {id}:\n{text}");
            }
            // Both are of one text.
            let at = line.as_ptr() as usize - text.as_ptr() as usize;
            book.take(&held, at);
        }
        for (id, (seen, of)) in grants {
            assert_eq!(seen, of, "lines of grant {id}:\n{text}");
        }
        book.text = text;
        book
    }

    fn take(&mut self, held: &Held<'_>, at: usize) {
        let (boot, namespace) = here();
        if held.namespace.is_some_and(|own| own != namespace) {
            self.elsewhere.insert(held.unit, at);
        } else if held.boot.is_some_and(|own| own != boot) {
            self.earlier.insert(held.unit);
        } else {
            self.held.entry(held.pid).or_default().insert((held.unit, held.start));
        }
    }

    /// What a process holds.
    pub(crate) fn units_of(&self, (pid, start): (u32, u64)) -> BTreeSet<Unit> {
        let of_its_pid = self.held.get(&pid).into_iter().flatten();
        let own = of_its_pid.filter(|line| line.1.is_none_or(|recorded| recorded == start));
        own.map(|line| line.0).collect()
    }

    /// Units of which a line says the start of the process too.
    pub(crate) fn surely_of(&self, (pid, start): (u32, u64)) -> BTreeSet<Unit> {
        let of_its_pid = self.held.get(&pid).into_iter().flatten();
        of_its_pid.filter(|line| line.1 == Some(start)).map(|line| line.0).collect()
    }

    /// Pids that only the script, or somebody in its manner, has written down.
    pub(crate) fn unsettled(&self) -> BTreeSet<u32> {
        let is_unsettled = |lines: &BTreeSet<(Unit, Option<u64>)>| lines.iter().any(|line| line.1.is_none());
        self.held.iter().filter(|(_, lines)| is_unsettled(lines)).map(|(pid, _)| *pid).collect()
    }

    /// Pid, unit and start of each line of this boot and pid namespace.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, Unit, Option<u64>)> + '_ {
        self.held.iter().flat_map(|(pid, lines)| lines.iter().map(|(unit, start)| (*pid, *unit, *start)))
    }

    /// Whether any line is about the unit, whoever lives.
    pub(crate) fn names(&self, unit: Unit) -> bool {
        let is_held = self.lines().any(|line| line.1 == unit);
        is_held || self.elsewhere.contains_key(&unit) || self.earlier.contains(&unit)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// The boot id and the pid namespace of this process, as a line has them.
pub(crate) fn here() -> (&'static str, &'static str) {
    static HERE: OnceLock<(String, String)> = OnceLock::new();
    let (boot, namespace) = HERE.get_or_init(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let link = fs::read_link("/proc/self/ns/pid").unwrap();
        let inode = link.to_str().unwrap().trim_start_matches("pid:[").trim_end_matches(']').to_owned();
        (boot.trim().replace('-', ""), inode)
    });
    (boot, namespace)
}

struct Held<'a> {
    unit: Unit,
    pid: u32,
    start: Option<u64>,
    grant: Option<(&'a str, usize)>,
    boot: Option<&'a str>,
    namespace: Option<&'a str>,
}

impl Held<'_> {
    /// `None` if it is not as a line has to be.
    fn parse(line: &str) -> Option<Held<'_>> {
        let (words, keys) = line.split_once('\t').unwrap_or((line, ""));
        let (index, pid) = words.split_once(' ')?;
        let value = |key: &str| {
            let mut pairs = keys.split(';').filter_map(|pair| pair.split_once('='));
            pairs.find(|pair| pair.0 == key).map(|pair| pair.1)
        };
        let start = value("start").map(|start| start.parse().ok());
        let grant = match (value("grant"), value("of")) {
            (Some(id), Some(of)) if id.len() == 16 => Some((id, of.parse().ok()?)),
            (None, None) => None,
            _ => return None,
        };
        // Ours has both, and the script's neither.
        if start.is_some() != grant.is_some() {
            return None;
        }
        let start = match start {
            Some(None) => return None,
            Some(start) => start,
            None => None,
        };
        let share = value("slot").map_or(Some(0), |slot| slot.parse().ok())?;
        let unit = (index.parse().ok()?, share);
        let pid = pid.parse().ok()?;
        Some(Held { unit, pid, start, grant, boot: value("boot"), namespace: value("pidns") })
    }
}
