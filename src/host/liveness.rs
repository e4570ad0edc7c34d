//! Whether the owner of an assignment is still alive.
//!
//! An owner counts as dead only if that is proven. Doubt is an answer of its own and counts as alive. There are three
//! kinds of rules: by boot, by process, and, for a line of Flink's script, by time.
//!
//! Each owner is judged once: thousands of assignments of one owner cost one read.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Host;
use super::process::Process;
use crate::assignment::{Assignment, Doubt, Owner, Standing, Waiter};

/// The coarsest granularity of times: some file systems keep whole seconds, and so does `btime`.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// What the coordination file itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFacts {
    /// The time of its last change, as read under the lock.
    pub(crate) changed: SystemTime,
    /// Whether it belongs to this host alone and outlasts a boot.
    pub(crate) is_on_local_disk: bool,
    /// Whether other hosts may write it too, with times of their own clocks.
    pub(crate) is_on_network: bool,
}

impl FileFacts {
    /// `changed` is the time of the last change of `file`, which is at `path`.
    pub(crate) fn of(host: &Host, file: &File, path: &Path, changed: SystemTime) -> FileFacts {
        if host.is_on_disk(file) {
            return FileFacts { changed, is_on_local_disk: true, is_on_network: false };
        }
        let mount = host.mount_of(path);
        FileFacts {
            changed,
            is_on_local_disk: mount.is_some_and(|mount| mount.is_local_disk()),
            is_on_network: mount.is_some_and(|mount| mount.is_network()),
        }
    }

    /// Whether the file was last changed before this boot: then every owner in it is dead.
    pub(crate) fn is_of_an_earlier_boot(&self, host: &Host) -> bool {
        self.is_before(host, 0)
    }

    /// Whether the last change was before the time `ticks` after the boot. A tie proves nothing.
    fn is_before(&self, host: &Host, ticks: u64) -> bool {
        let latest = self.changed.checked_add(CLOCK_STEP).filter(|_| !self.is_on_network);
        let is_before = |time: SystemTime| latest.is_some_and(|latest| latest < time);
        // The present clock is asked first, since it is cheaper and never gives an earlier time.
        host.started_at_the_latest(ticks).is_some_and(is_before) && host.started(ticks).is_some_and(is_before)
    }
}

/// All pids of a process, the one in the initial namespace first.
type Pids = Vec<u32>;

/// What this run has found out about owners.
pub(crate) struct Liveness<'a> {
    host: &'a Host,
    file: FileFacts,
    owners: RefCell<Known<Owner>>,
    /// By pid, which is all that a line of Flink's script has.
    scripts: RefCell<Known<u32>>,
    /// Every process of the machine; `None` if not all of them can be seen.
    everyone: OnceCell<Option<Vec<Pids>>>,
}

impl<'a> Liveness<'a> {
    pub(crate) fn new(host: &'a Host, file: FileFacts) -> Liveness<'a> {
        let (owners, scripts) = (RefCell::default(), RefCell::default());
        Liveness { host, file, owners, scripts, everyone: OnceCell::new() }
    }

    /// `is_in_inventory`: whether the assignment's device, by its identity, is in this host's inventory.
    pub(crate) fn standing(&self, assignment: &Assignment, is_in_inventory: bool) -> Standing {
        let owner = &assignment.owner;
        if assignment.is_the_scripts() {
            return cached(&self.scripts, &owner.pid, || self.by_pid(owner.pid));
        }
        if self.is_of_another_boot(owner) {
            return self.by_boot(is_in_inventory);
        }
        cached(&self.owners, owner, || self.by_process(owner))
    }

    /// A waiter names no device and holds none, so another boot in a file on this host's disk is an earlier one.
    pub(crate) fn of_waiter(&self, waiter: &Waiter) -> Standing {
        let owner = &waiter.owner;
        if self.is_of_another_boot(owner) {
            return self.by_boot(true);
        }
        cached(&self.owners, owner, || self.by_process(owner))
    }

    fn is_of_another_boot(&self, owner: &Owner) -> bool {
        let boots = owner.boot.as_ref().zip(self.host.boot_id());
        boots.is_some_and(|(recorded, now)| recorded.as_str() != now)
    }

    /// An owner of another boot is dead if the boot was this host's, but not if another host shares the file with us.
    fn by_boot(&self, is_in_inventory: bool) -> Standing {
        let is_this_hosts = is_in_inventory && self.file.is_on_local_disk;
        if is_this_hosts { Standing::Dead } else { Standing::Doubtful(Doubt::ForeignBoot) }
    }

    fn by_process(&self, owner: &Owner) -> Standing {
        let standing = match owner.pid_namespace.zip(self.host.pid_namespace()) {
            Some((recorded, ours)) if recorded == ours => self.here(owner.pid, owner.start),
            Some(_) => self.in_another_namespace(owner),
            None => self.in_an_unknown_namespace(owner),
        };
        // If either boot id is missing, it may be a process of another host.
        let is_boot_known = owner.boot.is_some() && self.host.boot_id().is_some();
        let may_be_elsewhere = self.file.is_on_network && !is_boot_known;
        match standing {
            Standing::Dead if may_be_elsewhere => Standing::Doubtful(Doubt::ForeignBoot),
            standing => standing,
        }
    }

    /// The process with this pid in our own pid namespace that began at `start`.
    fn here(&self, pid: u32, start: Option<u64>) -> Standing {
        match self.host.process(pid) {
            Err(_) => Standing::Doubtful(Doubt::Unreadable),
            Ok(None) => Standing::Dead,
            Ok(Some(process)) if process.is_dead() || !process.may_have_started_at(start) => Standing::Dead,
            // Without a start time, the pid may have become a thread's.
            Ok(Some(process)) if process.is_thread && (process.start.is_none() || start.is_none()) => {
                Standing::Dead
            }
            Ok(Some(_)) => Standing::Alive,
        }
    }

    /// The namespace may be ours: a process that is found counts as the owner; one that is not found may be elsewhere.
    fn in_an_unknown_namespace(&self, owner: &Owner) -> Standing {
        match self.here(owner.pid, owner.start) {
            Standing::Dead => Standing::Doubtful(Doubt::ForeignNamespace),
            standing => standing,
        }
    }

    /// Processes of other namespaces are visible only from the initial one, where they have several pids.
    fn in_another_namespace(&self, owner: &Owner) -> Standing {
        if !self.host.is_initial_pid_namespace() {
            return Standing::Doubtful(Doubt::ForeignNamespace);
        }
        let Some(everyone) = self.everyone.get_or_init(|| self.read_everyone()) else {
            return Standing::Doubtful(Doubt::Unreadable);
        };
        let candidates = everyone.iter().filter(|pids| self.may_be(pids, owner));
        let standings: Vec<_> = candidates.map(|pids| self.here(pids[0], owner.start)).collect();
        let doubt = standings.iter().find(|standing| matches!(standing, Standing::Doubtful(_))).copied();
        if standings.contains(&Standing::Alive) { Standing::Alive } else { doubt.unwrap_or(Standing::Dead) }
    }

    /// Whether one of these pids can be the recorded one. The kernel tells the namespace of the process itself, which
    /// matters: two containers that were started within one tick both have a pid 1 with that start. It does not tell the
    /// namespaces of the pids in between.
    fn may_be(&self, pids: &Pids, owner: &Owner) -> bool {
        let Some((first, [between @ .., own])) = pids.split_first() else { return false };
        let is_in = || {
            let namespace = self.host.namespace_of(&first.to_string(), "pid").ok();
            namespace.is_none_or(|namespace| Some(namespace) == owner.pid_namespace)
        };
        between.contains(&owner.pid) || (*own == owner.pid && is_in())
    }

    fn read_everyone(&self) -> Option<Vec<Pids>> {
        let listed = self.host.pids().ok()?;
        // If processes are hidden from us, pid 1 is among them.
        if !listed.contains(&1) {
            return None;
        }
        let statuses = listed.into_iter().map(|pid| self.host.status(pid));
        // A process that has ended since it was listed is left out: it is dead.
        let pids = statuses.filter_map(|status| status.transpose()).map(|status| Some(status.ok()?.pids));
        // Before Linux 4.1 there is no list of pids.
        pids.map(|pids| pids.filter(|pids| !pids.is_empty())).collect()
    }

    /// A line of Flink's script has only a pid: the file's time tells whether a later process has that pid now.
    fn by_pid(&self, pid: u32) -> Standing {
        if self.file.is_of_an_earlier_boot(self.host) {
            return Standing::Dead;
        }
        let is_later =
            |process: &Process| process.start.is_some_and(|start| self.is_later_than_the_file(start));
        match self.host.known_process(pid) {
            Err(_) => Standing::Doubtful(Doubt::Unreadable),
            Ok(None) => Standing::Dead,
            Ok(Some(process)) if process.is_dead() || process.is_thread || is_later(&process) => {
                Standing::Dead
            }
            Ok(Some(_)) => Standing::Alive,
        }
    }

    fn is_later_than_the_file(&self, start: u64) -> bool {
        self.file.is_before(self.host, start)
    }
}

/// The standing of each `K` that was asked for.
struct Known<K> {
    /// The one asked for last: the lines of an owner are adjacent, and a comparison is cheaper than a lookup.
    last: Option<(K, Standing)>,
    all: HashMap<K, Standing>,
}

impl<K> Default for Known<K> {
    fn default() -> Self {
        Known { last: None, all: HashMap::new() }
    }
}

fn cached<K: Clone + Eq + Hash>(
    known: &RefCell<Known<K>>,
    key: &K,
    find: impl FnOnce() -> Standing,
) -> Standing {
    if let Some((last, standing)) = &known.borrow().last
        && last == key
    {
        return *standing;
    }
    let found = known.borrow().all.get(key).copied();
    let standing = found.unwrap_or_else(find);
    let mut known = known.borrow_mut();
    known.all.insert(key.clone(), standing);
    known.last = Some((key.clone(), standing));
    standing
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::fixture::{BOOT, CONTAINER, INITIAL, Running, Tree, can_make_namespaces, wait_for};
    use super::*;
    use crate::assignment::Grant;
    use Standing::{Alive, Dead};

    const FOREIGN_BOOT: Standing = Standing::Doubtful(Doubt::ForeignBoot);
    const FOREIGN_NAMESPACE: Standing = Standing::Doubtful(Doubt::ForeignNamespace);
    const UNREADABLE: Standing = Standing::Doubtful(Doubt::Unreadable);

    fn facts(changed: u64) -> FileFacts {
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
        FileFacts { changed, is_on_local_disk: true, is_on_network: false }
    }

    fn owner(pid: u32, start: u64) -> Owner {
        let boot = Some(BOOT.to_owned());
        Owner { pid, start: Some(start), boot, pid_namespace: Some(INITIAL), uid: None }
    }

    fn assignment(owner: Owner, grant: Option<Grant>) -> Assignment {
        let line = Assignment::of_the_script(0, owner.pid);
        Assignment { owner, grant, ..line }
    }

    fn ours(owner: Owner) -> Assignment {
        assignment(owner, Some(Grant { id: 1, of: 1 }))
    }

    fn the_scripts(pid: u32) -> Assignment {
        assignment(Owner { pid, start: None, boot: None, pid_namespace: None, uid: None }, None)
    }

    fn standing(tree: &Tree, file: FileFacts, assignment: &Assignment) -> Standing {
        Liveness::new(&tree.host(), file).standing(assignment, true)
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_process_is_its_pid_and_its_start() {
        for (case, tree, expected) in [
            ("alive",                     Tree::new().alive(7, 5),                                  Alive),
            ("gone",                      Tree::new(),                                              Dead),
            ("its pid is used again",     Tree::new().alive(7, 6),                                  Dead),
            ("a zombie",                  Tree::new().process(7, "java", 'Z', 1, 1, 5),             Dead),
            ("a zombie leader that runs", Tree::new().process(7, "java", 'Z', 1, 2, 5),             Alive),
            ("its status cannot be read", Tree::new().alive(7, 5).without("proc/7/status").file("proc/7/status/x", ""), Alive),
            ("hidden",                    Tree::new().without("proc/1").file("proc/self/status", ""), UNREADABLE),
            ("not to be read",            Tree::new().file("proc/7/stat/x", ""),                    UNREADABLE),
            ("no /proc",                  Tree::empty().link("proc/self/ns/pid", &format!("pid:[{INITIAL}]")), UNREADABLE),
        ] {
            assert_eq!(standing(&tree, facts(0), &ours(owner(7, 5))), expected, "{case}");
        }
    }

    #[test]
    fn without_a_start_any_process_of_that_pid_may_be_it() {
        let unknown = || ours(Owner { start: None, ..owner(7, 5) });
        assert_eq!(standing(&Tree::new().alive(7, 6), facts(0), &unknown()), Alive);
        assert_eq!(standing(&Tree::new(), facts(0), &unknown()), Dead);
        assert_eq!(standing(&Tree::new().thread(7, 6), facts(0), &unknown()), Dead);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn another_boot_is_proof_only_of_this_hosts_owners() {
        let shared = FileFacts { is_on_local_disk: false, ..facts(0) };
        let no_boot_id = || Tree::new().without("proc/sys/kernel/random/boot_id");
        let other = "ffffffffffffffffffffffffffffffff";
        for (case, tree, file, boot, is_in_inventory, expected) in [
            ("another boot of this host",     Tree::new(),              facts(0), Some(other), true,  Dead),
            ("with its pid in use again",     Tree::new().alive(7, 5),  facts(0), Some(other), true,  Dead),
            ("another host's GPU",            Tree::new().alive(7, 5),  facts(0), Some(other), false, FOREIGN_BOOT),
            ("a shared file system",          Tree::new(),              shared,   Some(other), true,  FOREIGN_BOOT),
            ("this boot",                     Tree::new().alive(7, 5),  facts(0), Some(BOOT),  false, Alive),
            ("this boot, gone",               Tree::new(),              shared,   Some(BOOT),  false, Dead),
            ("recorded without, alive",       Tree::new().alive(7, 5),  facts(0), None,        true,  Alive),
            ("recorded without, gone",        Tree::new(),              facts(0), None,        true,  Dead),
            ("ours is not to be had",         no_boot_id().alive(7, 5), facts(0), Some(other), true,  Alive),
            ("ours is not to be had, gone",   no_boot_id(),             facts(0), Some(other), true,  Dead),
        ] {
            let owner = Owner { boot: boot.map(str::to_owned), ..owner(7, 5) };
            let found = Liveness::new(&tree.host(), file).standing(&ours(owner), is_in_inventory);
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn on_a_network_an_unknown_boot_may_be_another_hosts() {
        let network = FileFacts { is_on_local_disk: false, is_on_network: true, ..facts(0) };
        let unknown = ours(Owner { boot: None, ..owner(7, 5) });
        assert_eq!(standing(&Tree::new(), network, &unknown), FOREIGN_BOOT);
        assert_eq!(standing(&Tree::new().alive(7, 5), network, &unknown), Alive);
        assert_eq!(standing(&Tree::new(), network, &ours(owner(7, 5))), Dead, "the same boot");
    }

    #[test]
    #[rustfmt::skip] // a table
    fn another_pid_namespace_is_judged_from_the_initial_one() {
        let inner = |pids: &[u32]| Tree::new().alive(80, 5).pids(pids).pids(&[1]);
        for (case, tree, expected) in [
            ("alive",                          inner(&[80, 7]),                             Alive),
            ("alive, two namespaces below",    inner(&[80, 7, 1]),                          Alive),
            ("in the recorded one",            inner(&[80, 7]).link("proc/80/ns/pid", "pid:[55]"),    Alive),
            ("its pid and start in another",   inner(&[80, 7]).link("proc/80/ns/pid", "pid:[56]"),    Dead),
            ("the recorded one is between",    inner(&[80, 7, 1]).link("proc/80/ns/pid", "pid:[56]"), Alive),
            ("its pid on the host",            Tree::new().alive(7, 5).pids(&[7, 80]).pids(&[1]), Dead),
            ("gone",                           inner(&[80, 6]),                             Dead),
            ("its pid in use again",           Tree::new().alive(80, 6).pids(&[80, 7]),     Dead),
            ("two of that pid",                inner(&[80, 7]).alive(81, 9).pids(&[81, 7]), Alive),
            ("a zombie",                       Tree::new().process(80, "java", 'Z', 1, 1, 5).pids(&[80, 7]), Dead),
            ("our own process of that pid",    Tree::new().alive(7, 6),                     Dead),
            ("not every process is listed",    inner(&[80, 6]).without("proc/1").file("proc/self/status", ""), UNREADABLE),
            ("one cannot be read",             inner(&[80, 6]).without("proc/80/status").file("proc/80/status/x", ""), UNREADABLE),
            ("it cannot be read whether it lives", inner(&[80, 7]).without("proc/80/stat").file("proc/80/stat/x", ""), UNREADABLE),
            ("before Linux 4.1",               inner(&[80, 6]).file("proc/80/status", "Tgid:\t80\nUid:\t0\t0\t0\t0\n"), UNREADABLE),
            ("from another one",               inner(&[80, 7]).link("proc/1/ns/pid", "pid:[77]"), FOREIGN_NAMESPACE),
            ("from one that is not known",     inner(&[80, 7]).without("proc/1/ns/pid").file("proc/1/ns/pid", ""), FOREIGN_NAMESPACE),
        ] {
            let owner = Owner { pid_namespace: Some(55), ..owner(7, 5) };
            assert_eq!(standing(&tree, facts(0), &ours(owner)), expected, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_namespace_that_is_not_known_is_not_ours() {
        let unknown = || Tree::new().without("proc/self/ns/pid").without("proc/1/ns/pid");
        for (case, tree, recorded, expected) in [
            ("neither, alive",            unknown().alive(7, 5),   None,          Alive),
            ("neither, gone",             unknown(),               None,          FOREIGN_NAMESPACE),
            ("neither, its pid in use",   unknown().alive(7, 6),   None,          FOREIGN_NAMESPACE),
            ("neither, not to be read",   unknown().file("proc/7/stat/x", ""), None, UNREADABLE),
            ("the recorded, alive",       unknown().alive(7, 5),   Some(INITIAL), Alive),
            ("the recorded, gone",        unknown(),               Some(INITIAL), FOREIGN_NAMESPACE),
            ("ours, alive",               Tree::new().alive(7, 5), None,          Alive),
            ("ours, gone",                Tree::new(),             None,          FOREIGN_NAMESPACE),
        ] {
            let owner = Owner { pid_namespace: recorded, ..owner(7, 5) };
            assert_eq!(standing(&tree, facts(0), &ours(owner)), expected, "{case}");
        }
    }

    #[test]
    fn a_namespace_of_the_same_number_may_be_another() {
        let reused = Tree::new().link("proc/1/ns/pid", "pid:[77]").alive(7, 6);
        let owner = Owner { pid_namespace: Some(77), ..owner(7, 5) };
        assert_eq!(standing(&reused, facts(0), &ours(owner)), Dead);
    }

    /// Booted at 1000 s; process 7 began 50 s later.
    fn booted() -> Tree {
        Tree::new().file("proc/stat", "btime 1000\n").alive(7, 5_000)
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_line_of_the_script_is_judged_by_the_time_of_the_file() {
        for (case, tree, changed, expected) in [
            ("written after the start",        booted(),                                     1_060, Alive),
            ("in the second of the start",     booted(),                                     1_050, Alive),
            ("within the clock's step",        booted(),                                     1_049, Alive),
            ("before the start",               booted(),                                     1_048, Dead),
            ("within the step of the boot",    booted().alive(7, 0),                           999, Alive),
            ("before the boot",                booted().alive(7, 0),                           998, Dead),
            ("before the boot, not to be read", booted().without("proc/7/stat").file("proc/7/stat/x", ""), 5, Dead),
            ("gone",                           booted().without("proc/7"),                   1_060, Dead),
            ("a zombie",                       booted().process(7, "java", 'Z', 1, 1, 5),    1_060, Dead),
            ("a zombie leader that runs",      booted().process(7, "java", 'Z', 1, 2, 5),    1_060, Alive),
            ("a thread",                       booted().thread(7, 5_000),                    1_060, Dead),
            ("not to be read",                 booted().without("proc/7/stat").file("proc/7/stat/x", ""), 1_060, UNREADABLE),
            ("in a container: no rule of time", booted().link("proc/1/ns/pid", "pid:[77]"),      5, Alive),
            ("in a container, gone",           booted().link("proc/1/ns/pid", "pid:[77]").without("proc/7"), 5, Dead),
        ] {
            assert_eq!(standing(&tree, facts(changed), &the_scripts(7)), expected, "{case}");
        }
        let network = FileFacts { is_on_network: true, ..facts(5) };
        assert_eq!(standing(&booted(), network, &the_scripts(7)), Alive, "another host's clock");
    }

    #[test]
    fn our_own_line_is_not_judged_by_the_time_of_the_file() {
        assert_eq!(standing(&booted(), facts(5), &ours(owner(7, 5_000))), Alive);
    }

    #[test]
    fn a_file_is_of_an_earlier_boot_or_not() {
        assert!(facts(998).is_of_an_earlier_boot(&booted().host()));
        assert!(!facts(999).is_of_an_earlier_boot(&booted().host()));
        assert!(!facts(998).is_of_an_earlier_boot(&Tree::new().host()), "a boot without a date");
    }

    #[test]
    fn an_owner_is_asked_about_once() {
        let tree = booted();
        let host = tree.host();
        let liveness = Liveness::new(&host, facts(2_000));
        let both = [ours(owner(7, 5_000)), the_scripts(7)];
        assert_eq!(both.each_ref().map(|line| liveness.standing(line, true)), [Alive, Alive]);
        fs::remove_dir_all(tree.path("proc/7")).unwrap();
        assert_eq!(both.each_ref().map(|line| liveness.standing(line, true)), [Alive, Alive]);
        assert_eq!(liveness.standing(&ours(owner(7, 5_001)), true), Dead, "another owner");
    }

    #[test]
    fn the_facts_are_those_of_the_mount() {
        let tree = Tree::new().file("record", "");
        let (path, now) = (tree.path("record"), SystemTime::now());
        let file = File::open(&path).unwrap();
        let mounted = |kind: &str| format!("1 0 0:9 / / rw - {kind} x rw\n");
        for (kind, is_on_local_disk, is_on_network) in
            [("xfs", true, false), ("nfs4", false, true), ("tmpfs", false, false)]
        {
            let mounts = Tree::new().file("proc/self/mountinfo", mounted(kind));
            let expected = FileFacts { changed: now, is_on_local_disk, is_on_network };
            assert_eq!(FileFacts::of(&mounts.host(), &file, &path, now), expected, "{kind}");
        }
    }

    fn here() -> Host {
        Host::new(Path::new("/"))
    }

    fn real_owner(pid: u32) -> Owner {
        let host = here();
        let start = host.process(pid).unwrap().unwrap().start;
        Owner {
            start,
            boot: host.boot_id().map(str::to_owned),
            pid_namespace: host.pid_namespace(),
            ..owner(pid, 0)
        }
    }

    #[test]
    fn a_real_process_lives_until_it_has_exited() {
        let running = Running::start("sleep", &["60"]);
        let assignment = ours(real_owner(running.pid()));
        let standing = || Liveness::new(&here(), facts(0)).standing(&assignment, true);
        assert_eq!(standing(), Alive);
        running.end();
        assert_eq!(standing(), Dead);
    }

    #[test]
    fn a_real_zombie_is_dead() {
        let zombie = Running::start("true", &[]).becomes_a_zombie();
        let line = ours(real_owner(zombie.pid()));
        assert_eq!(Liveness::new(&here(), facts(0)).standing(&line, true), Dead);
    }

    #[test]
    fn a_real_process_in_another_namespace_is_seen_from_the_initial_one() {
        if !can_make_namespaces("a_real_process_in_another_namespace_is_seen_from_the_initial_one") {
            return;
        }
        // Pid 2 in there, so that another pid than 1 is looked for.
        let script = "sleep 60 & readlink /proc/self/ns/pid; wait";
        let arguments = [&CONTAINER[..], &["sh", "-c", script]].concat();
        let mut unshare = Running::start("unshare", &arguments);
        let namespace = crate::host::namespace::parse_link(&unshare.line());
        let host = here();
        let is_it = |pid: &u32| {
            let status = host.status(*pid).unwrap();
            host.namespace_of(&pid.to_string(), "pid").ok() == namespace
                && status.is_some_and(|status| status.pids.last() == Some(&2))
        };
        let outer = host.pids().unwrap().into_iter().find(is_it).unwrap();
        let start = wait_for(outer, |process| process.name == "sleep").start;
        let owner = Owner { pid: 2, pid_namespace: namespace, ..real_owner(outer) };
        let line = |start| ours(Owner { start, ..owner.clone() });
        let standing = |start| Liveness::new(&host, facts(0)).standing(&line(start), true);
        assert_eq!(standing(start), Alive);
        assert_eq!(standing(start.map(|ticks| ticks + 1)), Dead);
        unshare.end();
        wait_until_gone(outer);
        assert_eq!(standing(start), Dead);
    }

    /// The kernel ends what is left of a pid namespace after its first process.
    fn wait_until_gone(pid: u32) {
        let since = std::time::Instant::now();
        while here().process(pid).unwrap().is_some_and(|process| !process.is_dead()) {
            assert!(since.elapsed() < Duration::from_secs(10), "pid {pid} stays");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
