//! The coordination file, read by code that is independent of the program's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A line that holds a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) index: u32,
    /// Of a shared device, which share it is.
    pub(crate) slot: Option<u32>,
    pub(crate) pid: u32,
    /// In clock ticks from the boot; a line of Flink's script has none.
    pub(crate) start: Option<u64>,
    /// Its id, and how many lines it has.
    pub(crate) grant: Option<(String, usize)>,
    /// The grant of `exec` that it is of.
    pub(crate) of_exec: Option<String>,
    /// And was asked for inside.
    pub(crate) is_taken: bool,
}

/// What the file at `path` holds; nothing if there is none.
#[track_caller]
pub(crate) fn held_in(path: &Path) -> Vec<Held> {
    held(&fs::read(path).unwrap_or_default())
}

/// What is held, in the order of the lines. A line that cannot be understood fails the test.
#[track_caller]
pub(crate) fn held(bytes: &[u8]) -> Vec<Held> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line has no end: {text:?}");
    let free = text.lines().filter(|line| line.starts_with('#'));
    let free: BTreeSet<&str> = free.flat_map(|line| values(line, "grant")).collect();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '?', '!']));
    let held = lines.map(|line| read(line).unwrap_or_else(|| panic!("{line:?} is no line of the record")));
    held.filter(|held| held.grant.as_ref().is_none_or(|(id, _)| !free.contains(id.as_str()))).collect()
}

fn read(line: &str) -> Option<Held> {
    let (words, keys) = line.split_once('\t').unwrap_or((line, ""));
    let (index, pid) = words.split_once(' ')?;
    let number = |key: &str| values(keys, key).next().map(|value| value.parse::<u64>().unwrap());
    let grant = values(keys, "grant").next().map(str::to_owned);
    Some(Held {
        index: index.parse().ok()?,
        slot: number("slot").map(|slot| u32::try_from(slot).unwrap()),
        pid: pid.parse().ok()?,
        start: number("start"),
        grant: grant.map(|id| (id, usize::try_from(number("of").unwrap()).unwrap())),
        of_exec: values(keys, "exec").chain(values(keys, "taken")).next().map(str::to_owned),
        is_taken: values(keys, "taken").next().is_some(),
    })
}

fn values<'a>(keys: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    keys.split([';', '\t'])
        .filter_map(move |pair| pair.split_once('='))
        .filter(move |pair| pair.0 == key)
        .map(|pair| pair.1)
}

/// Whether the owner runs, and is not a later process with the same pid.
pub(crate) fn is_alive(held: &Held) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", held.pid)) else { return false };
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect(); // from the third on
    fields[0] != "Z" && held.start.is_none_or(|start| fields[19].parse() == Ok(start))
}

/// The units of the living, each with its owner's pid, in order.
pub(crate) fn of_the_living(held: &[Held]) -> BTreeSet<(u32, u32)> {
    held.iter().filter(|held| is_alive(held)).map(|held| (held.index, held.pid)).collect()
}

/// What `pid` holds.
pub(crate) fn units_of(held: &[Held], pid: u32) -> BTreeSet<u32> {
    held.iter().filter(|held| held.pid == pid).map(|held| held.index).collect()
}

/// G4 and G5: no unit has two living owners, but for the command of `exec` and one that has asked inside of it; and
/// every grant has all of its lines. An owner can have several lines of a unit, after a crash.
#[track_caller]
pub(crate) fn assert_sound(held: &[Held]) {
    let mut units: BTreeMap<u32, Vec<&Held>> = BTreeMap::new();
    for held in held.iter().filter(|held| is_alive(held)) {
        let holders = units.entry(held.index).or_default();
        if holders.iter().all(|other| other.pid != held.pid) {
            holders.push(held);
        }
    }
    for holders in units.into_values() {
        let of_one_exec = |other: &&Held| {
            other.of_exec.is_some()
                && other.of_exec == holders[0].of_exec
                && other.is_taken != holders[0].is_taken
        };
        assert!(holders.len() <= 2, "a unit has many living owners: {holders:?}");
        assert!(holders[1..].iter().all(of_one_exec), "a unit has two living owners: {holders:?}");
    }
    assert_whole(held);
}

/// G5: every grant has all of its lines.
#[track_caller]
pub(crate) fn assert_whole(held: &[Held]) {
    let mut lines: BTreeMap<&(String, usize), usize> = BTreeMap::new();
    for grant in held.iter().filter_map(|held| held.grant.as_ref()) {
        *lines.entry(grant).or_default() += 1;
    }
    for ((id, of), lines) in lines {
        assert_eq!(lines, *of, "lines of grant {id}: {held:?}");
    }
}
