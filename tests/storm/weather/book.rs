//! The coordination file, read by code that shares nothing with the program's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// Who holds what.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// By the pid: a unit, and the start of the process, which a line of the script lacks.
    pub(crate) held: BTreeMap<u32, BTreeSet<(u32, Option<u64>)>>,
    text: String,
}

impl Book {
    /// What is written while no writer is at work.
    #[expect(clippy::disallowed_methods, reason = "the test is another process that locks the file")]
    pub(crate) fn read(path: &Path) -> Book {
        let file = File::open(path).unwrap();
        let mut locked = Flock::lock(file, FlockArg::LockShared).unwrap();
        let mut text = String::new();
        locked.read_to_string(&mut text).unwrap();
        drop(locked);
        Book::parse(text)
    }

    fn parse(text: String) -> Book {
        assert!(text.is_empty() || text.ends_with('\n'), "the last line has no end:\n{text}");
        let mut ended: BTreeSet<&str> = BTreeSet::new();
        for line in text.lines().filter(|line| line.starts_with('#')) {
            let pieces = line.split([';', '\t']);
            ended.extend(pieces.filter_map(|piece| piece.strip_prefix("grant=")).filter(|id| id.len() == 16));
        }
        let mut all: BTreeMap<u32, BTreeSet<(u32, Option<u64>)>> = BTreeMap::new();
        let mut grants: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let Some(held) = Held::parse(line) else { panic!("{line:?} is no line:\n{text}") };
            if let Some((id, of)) = held.grant {
                if ended.contains(id) {
                    continue;
                }
                let (seen, said) = grants.entry(id).or_insert((0, of));
                *seen += 1;
                assert_eq!(*said, of, "grant {id}:\n{text}");
            }
            all.entry(held.pid).or_default().insert((held.index, held.start));
        }
        for (id, (seen, of)) in grants {
            assert_eq!(seen, of, "lines of grant {id}:\n{text}");
        }
        Book { held: all, text }
    }

    /// What a process holds.
    pub(crate) fn of(&self, (pid, start): (u32, u64)) -> BTreeSet<u32> {
        let of_its_pid = self.held.get(&pid).into_iter().flatten();
        let own = of_its_pid.filter(|line| line.1.is_none_or(|recorded| recorded == start));
        own.map(|line| line.0).collect()
    }

    /// Of a unit, the pids of all lines.
    pub(crate) fn pids(&self, unit: u32) -> Vec<u32> {
        let has = |lines: &BTreeSet<(u32, Option<u64>)>| lines.iter().any(|line| line.0 == unit);
        self.held.iter().filter(|(_, lines)| has(lines)).map(|(pid, _)| *pid).collect()
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

struct Held<'a> {
    index: u32,
    pid: u32,
    start: Option<u64>,
    grant: Option<(&'a str, usize)>,
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
        Some(Held { index: index.parse().ok()?, pid: pid.parse().ok()?, start, grant })
    }
}
