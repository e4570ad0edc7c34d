//! Who becomes the owner of the requested units: usually the process that started us.

use super::Host;
use super::file;
use super::process::{Process, parse_stat};
use super::wrapper;
use crate::assignment::Owner;
use crate::error::Error;
use crate::notes::Notes;

/// What systemd says in the environment of a unit's processes. A malformed value counts as none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    /// `$SYSTEMD_EXEC_PID`: the process that the service manager started.
    exec_pid: Option<u32>,
    /// `$MAINPID`: the unit's main process, for commands that run next to it.
    main_pid: Option<u32>,
    /// `$INVOCATION_ID`: this run of the unit.
    invocation: Option<String>,
}

/// The service manager: also that of a user, or of a container, which adopt what their processes leave.
const MANAGER: &str = "systemd";

/// The form of the command that looks for an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `gpu-coord AMOUNT`: often wrapped in a script, since Flink cannot pass it options with blanks.
    Discover,
    Allocate,
    DeallocateAll,
}

/// Whose units are requested or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Owner(Owner),
    /// `deallocateAll` only: the process with this pid has ended, and what a dead owner with this pid held can be
    /// released.
    Gone(u32),
    /// `deallocateAll` only: what this run of a systemd unit holds.
    Invocation(String),
}

impl Service {
    /// `variable` looks up a variable of the environment.
    pub(crate) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Service {
        let pid = |name: &str| variable(name).and_then(|value| parse_pid(&value));
        Service {
            exec_pid: pid("SYSTEMD_EXEC_PID"),
            main_pid: pid("MAINPID"),
            invocation: variable("INVOCATION_ID").filter(|id| is_invocation(id)),
        }
    }

    /// What an assignment records about the systemd unit that asked.
    pub(crate) fn invocation(&self) -> Option<&str> {
        self.invocation.as_deref()
    }

    /// Whether the service manager started this very process: other processes of the unit inherit the variable.
    fn has_started_us(&self) -> bool {
        self.exec_pid.is_some_and(|pid| pid == std::process::id())
    }
}

fn parse_pid(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|pid| is_number && *pid > 0)
}

fn is_invocation(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `given` is the pid of `--owner`.
pub(crate) fn find(
    host: &Host,
    form: Form,
    given: Option<u32>,
    service: &Service,
    notes: &mut Notes,
) -> Result<Found, Error> {
    if let Some(pid) = given {
        return named(host, form, pid, "--owner");
    }
    if service.has_started_us() {
        return of_service(host, form, service);
    }
    let parent = parent(host)?;
    let process = match form {
        Form::Discover if wrapper::is_one(host, &parent) => wrapper::behind(host, parent, notes),
        Form::Discover => parent,
        Form::Allocate | Form::DeallocateAll => {
            wrapper::warn_of_tool(host, &parent, notes);
            parent
        }
    };
    as_owner(host, &process).map(Found::Owner)
}

/// Fails unless the owner is still the same living process: pids are reused.
pub(crate) fn recheck(host: &Host, owner: &Owner) -> Result<(), Error> {
    let pid = owner.pid;
    host.check_read()?;
    match host.watched_process(pid)? {
        None => Err(Error::Owner(format!("the owner, pid {pid}, has exited"))),
        Some(process) if process.is_dead() => Err(Error::Owner(format!("the owner, pid {pid}, has exited"))),
        Some(process) if !process.may_have_started_at(owner.start) => {
            Err(Error::Owner(format!("the owner, pid {pid}, has exited, and its pid is another process now")))
        }
        Some(_) => Ok(()),
    }
}

/// The process that `option` names. An operator may name any process, even pid 1.
fn named(host: &Host, form: Form, pid: u32, option: &str) -> Result<Found, Error> {
    let problem = match host.watched_process(pid)? {
        _ if pid == 0 => "is not a process",
        None if form == Form::DeallocateAll => return Ok(Found::Gone(pid)),
        None => "does not exist",
        Some(process) if process.is_dead() && form == Form::DeallocateAll => return Ok(Found::Gone(pid)),
        Some(process) if process.is_dead() => "has exited (it is a zombie)",
        Some(process) if process.is_thread => "is a thread, not a process",
        Some(process) => return as_owner(host, &process).map(Found::Owner),
    };
    Err(Error::Usage(format!("{option}: pid {pid} {problem}; name the process that holds the units")))
}

/// The owner if our parent is the service manager, which holds nothing itself.
fn of_service(host: &Host, form: Form, service: &Service) -> Result<Found, Error> {
    if let Some(pid) = service.main_pid {
        return named(host, form, pid, "$MAINPID");
    }
    match (&service.invocation, form) {
        (Some(id), Form::DeallocateAll) => Ok(Found::Invocation(id.clone())),
        (None, Form::DeallocateAll) => Err(Error::Usage(
            "started by the service manager, without $MAINPID and without $INVOCATION_ID; name the process \
             whose units are given back with --owner PID"
                .to_owned(),
        )),
        (_, Form::Discover | Form::Allocate) => Err(Error::Usage(
            "started by the service manager, which cannot own units; start the program that should hold them with \
             `gpu-coord exec AMOUNT -- COMMAND`, or name its process with --owner PID"
                .to_owned(),
        )),
    }
}

fn parent(host: &Host) -> Result<Process, Error> {
    let pid = parent_pid(host)?;
    let problem = if pid == 0 {
        "the parent process is outside this pid namespace (its pid is 0, as under `docker exec`)".to_owned()
    } else if pid == 1 && may_be_the_hosts(host) {
        "the process that started gpu-coord has exited (pid 1 has adopted gpu-coord)".to_owned()
    } else {
        match host.watched_process(pid)?.filter(|process| !process.is_dead()) {
            Some(process) if process.name == MANAGER => format!(
                "the parent process, pid {pid}, is systemd, which has started gpu-coord or adopted it, and holds nothing"
            ),
            Some(process) => return Ok(process),
            None => format!("the parent process, pid {pid}, has exited"),
        }
    };
    Err(Error::Owner(format!("{problem}; name the process that should hold the units with --owner PID")))
}

/// A container's pid 1 is often the JVM itself; the host's pid 1 never asks for a GPU.
fn may_be_the_hosts(host: &Host) -> bool {
    host.pid_namespace().is_none() || host.is_initial_pid_namespace()
}

fn parent_pid(host: &Host) -> Result<u32, Error> {
    if host.is_here() {
        return Ok(u32::try_from(nix::unistd::getppid().as_raw()).unwrap_or(0));
    }
    // Below another root, pids may belong to another namespace than ours.
    let path = host.proc("self/stat");
    let own = file::read(&path).ok().and_then(|stat| parse_stat(&stat));
    let problem =
        "gpu-coord is not a process there; name the process that should hold the units with --owner PID";
    own.map(|own| own.parent).ok_or_else(|| Error::File { path, problem: problem.to_owned() })
}

fn as_owner(host: &Host, process: &Process) -> Result<Owner, Error> {
    let owner = Owner {
        pid: process.pid,
        start: process.start,
        boot: host.boot_id().map(str::to_owned),
        pid_namespace: host.pid_namespace(),
        uid: host.uid(process.pid),
    };
    host.check_read().map(|()| owner)
}

impl Host {
    /// Whether the pid of an owner means the same process here; an unknown pid namespace counts as ours.
    pub(crate) fn has_pids_of(&self, owner: &Owner) -> bool {
        owner.pid_namespace.is_none_or(|namespace| Some(namespace) == self.pid_namespace())
    }
}

/// The living process `pid` as an owner; `None` if it has ended or cannot be told from others.
pub(crate) fn of(host: &Host, pid: u32) -> Option<Owner> {
    let process = host.known_process(pid).ok()??;
    let is_known = process.start.is_some() && !process.is_dead();
    as_owner(host, &process).ok().filter(|_| is_known)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::fixture::{self, BOOT, INITIAL, Tree, stat};
    use super::*;
    use crate::exit::Exit;

    const INVOCATION: &str = "fedcba9876543210fedcba9876543210";

    fn service(set: &[(&str, &str)]) -> Service {
        let find = |name: &str| set.iter().find(|(other, _)| *other == name);
        Service::from_environment(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    /// gpu-coord, a child of `parent`.
    fn below(parent: u32, tree: Tree) -> Tree {
        tree.file("proc/self/stat", stat(999, "gpu-coord", 'R', parent, 1, 1, 9_000))
            .file("proc/uptime", "100.00 1.00\n")
    }

    fn found(tree: &Tree, form: Form, given: Option<u32>) -> (Result<Found, Error>, Notes) {
        let mut notes = Notes::default();
        (find(&tree.host(), form, given, &Service::default(), &mut notes), notes)
    }

    #[track_caller]
    fn assert_pid(case: &str, found: &Result<Found, Error>, pid: u32) {
        match found {
            Ok(Found::Owner(owner)) => assert_eq!(owner.pid, pid, "{case}"),
            other => panic!("{case}: {other:?}"),
        }
    }

    #[track_caller]
    fn assert_fails(case: &str, found: Result<Found, Error>, exit: Exit, words: &str) {
        let error = found.expect_err(case);
        assert_eq!(error.exit(), exit, "{case}");
        assert!(error.to_string().contains(words), "{case}: {error}");
    }

    #[test]
    fn the_owner_is_the_parent_with_all_that_tells_it_from_others() {
        let tree = below(4711, Tree::new().alive(4711, 321));
        let owner = Owner {
            pid: 4711,
            start: Some(321),
            boot: Some(BOOT.to_owned()),
            pid_namespace: Some(INITIAL),
            uid: Some(998),
        };
        for form in [Form::Discover, Form::Allocate, Form::DeallocateAll] {
            assert_eq!(found(&tree, form, None).0.unwrap(), Found::Owner(owner.clone()), "{form:?}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_wrapper_is_looked_behind_in_the_bare_form_only() {
        let tree = |name| below(30, Tree::new().alive(10, 100).process(30, name, 'S', 10, 1, 9_999));
        for (name, form, pid) in [
            ("sh", Form::Discover, 10), ("sh", Form::Allocate, 30), ("sh", Form::DeallocateAll, 30),
            ("python3", Form::Discover, 30),
        ] {
            assert_pid(&format!("{name}, {form:?}"), &found(&tree(name), form, None).0, pid);
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_parent_that_is_no_owner_is_refused() {
        let container = |tree: Tree| tree.link("proc/1/ns/pid", "pid:[5]");
        for (case, tree, words) in [
            ("docker exec",            below(0, Tree::new()),             "--owner"),
            ("adopted by pid 1",       below(1, Tree::new()),             "has exited"),
            ("adopted by which pid 1?", below(1, Tree::new().without("proc/1/ns/pid").without("proc/self/ns/pid")), "has exited"),
            ("exited",                 below(4711, Tree::new()),          "pid 4711, has exited"),
            ("exited, a zombie",       below(7, Tree::new().process(7, "java", 'Z', 1, 1, 5)), "pid 7, has exited"),
            ("of another host",        Tree::new(),                       "--owner"),
            ("adopted by a user's systemd", below(7, Tree::new().process(7, "systemd", 'S', 1, 1, 5)), "pid 7, is systemd, which has started gpu-coord or adopted it"),
            ("adopted by a container's systemd", below(1, container(Tree::new())), "pid 1, is systemd"),
        ] {
            assert_fails(case, found(&tree, Form::Allocate, None).0, Exit::Host, words);
        }
        let jvm = container(Tree::new().process(1, "java", 'S', 0, 40, 2));
        assert_pid("pid 1 of a container", &found(&below(1, jvm), Form::Allocate, None).0, 1);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_named_owner_must_be_a_living_process() {
        let tree = || Tree::new()
            .alive(7, 5)
            .process(8, "java", 'Z', 1, 1, 5)
            .process(9, "java", 'Z', 1, 3, 5)
            .thread(10, 5);
        for (case, pid, words) in [
            ("none", 4711, "pid 4711 does not exist"), ("0", 0, "pid 0 is not a process"),
            ("out of range", 4_194_305, "pid 4194305 does not exist"),
            ("a zombie", 8, "pid 8 has exited (it is a zombie)"), ("a thread", 10, "pid 10 is a thread"),
        ] {
            assert_fails(case, found(&tree(), Form::Allocate, Some(pid)).0, Exit::Usage, words);
        }
        assert_pid("alive", &found(&tree(), Form::Allocate, Some(7)).0, 7);
        assert_pid("a zombie leader that lives", &found(&tree(), Form::Allocate, Some(9)).0, 9);
        assert_pid("pid 1, by intention", &found(&tree(), Form::Discover, Some(1)).0, 1);
    }

    #[test]
    fn the_units_of_a_process_that_has_ended_can_be_given_back() {
        let tree = Tree::new().process(8, "java", 'Z', 1, 1, 5);
        for pid in [8, 4711] {
            assert_eq!(found(&tree, Form::DeallocateAll, Some(pid)).0.unwrap(), Found::Gone(pid));
        }
        let hidden = Tree::new().without("proc/1").file("proc/self/status", "");
        assert_fails("doubt", found(&hidden, Form::DeallocateAll, Some(4711)).0, Exit::Host, "hidepid");
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_variable_of_another_form_is_none() {
        for (name, value) in [
            ("SYSTEMD_EXEC_PID", ""), ("SYSTEMD_EXEC_PID", "x"), ("SYSTEMD_EXEC_PID", "0"), ("SYSTEMD_EXEC_PID", "-1"),
            ("SYSTEMD_EXEC_PID", "+7"), ("MAINPID", " 7"), ("MAINPID", "99999999999"),
            ("INVOCATION_ID", ""), ("INVOCATION_ID", "fedc"), ("INVOCATION_ID", "fedcba9876543210fedcba987654321 "),
        ] {
            assert_eq!(service(&[(name, value)]), Service::default(), "{name}={value}");
        }
        assert_eq!(service(&[("INVOCATION_ID", INVOCATION)]).invocation(), Some(INVOCATION));
    }

    #[test]
    #[rustfmt::skip] // a table
    fn the_service_manager_is_no_owner() {
        let us = std::process::id().to_string();
        let tree = below(1, Tree::new().alive(7, 5));
        let find = |form, set: &[(&str, &str)]| find(&tree.host(), form, None, &service(set), &mut Notes::default());
        let (exec, main, run) = (("SYSTEMD_EXEC_PID", us.as_str()), ("MAINPID", "7"), ("INVOCATION_ID", INVOCATION));

        assert_pid("ExecStartPost", &find(Form::Allocate, &[exec, main, run]), 7);
        assert_pid("ExecStop", &find(Form::DeallocateAll, &[exec, main, run]), 7);
        assert_fails("ExecStartPost, exited", find(Form::Allocate, &[exec, ("MAINPID", "9")]), Exit::Usage, "$MAINPID: pid 9");
        assert_eq!(find(Form::DeallocateAll, &[exec, ("MAINPID", "9"), run]).unwrap(), Found::Gone(9));
        assert_eq!(find(Form::DeallocateAll, &[exec, run]).unwrap(), Found::Invocation(INVOCATION.to_owned()), "ExecStopPost");
        assert_fails("no run", find(Form::DeallocateAll, &[exec]), Exit::Usage, "--owner");
        for form in [Form::Allocate, Form::Discover] {
            assert_fails("ExecStartPre", find(form, &[exec, run]), Exit::Usage, "gpu-coord exec");
        }
    }

    #[test]
    fn the_child_of_a_units_process_has_that_for_its_owner() {
        let tree = below(7, Tree::new().alive(7, 5).alive(8, 5));
        let inherited =
            service(&[("SYSTEMD_EXEC_PID", "7"), ("MAINPID", "8"), ("INVOCATION_ID", INVOCATION)]);
        for form in [Form::Discover, Form::Allocate, Form::DeallocateAll] {
            let found = find(&tree.host(), form, None, &inherited, &mut Notes::default());
            assert_pid("inherited", &found, 7);
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn an_owner_is_looked_at_again() {
        let Ok(Found::Owner(owner)) = found(&Tree::new().alive(7, 5), Form::Allocate, Some(7)).0 else { panic!() };
        for (case, tree, says) in [
            ("the same",         Tree::new().alive(7, 5),                        None),
            ("gone",             Tree::new(),                                    Some("the owner, pid 7, has exited")),
            ("a zombie",         Tree::new().process(7, "java", 'Z', 1, 1, 5),   Some("the owner, pid 7, has exited")),
            ("another process",  Tree::new().alive(7, 6),                        Some("another process now")),
            ("not to be told",   Tree::new().without("proc/1").file("proc/self/status", ""), Some("hidepid")),
        ] {
            let said = recheck(&tree.host(), &owner).err().map(|error| error.to_string());
            assert_eq!(said.is_some(), says.is_some(), "{case}: {said:?}");
            assert!(said.unwrap_or_default().contains(says.unwrap_or_default()), "{case}");
        }
    }

    /// Whoever is written down instead of a line of the script.
    #[test]
    #[rustfmt::skip] // a table
    fn only_a_living_process_that_can_be_told_from_later_ones_replaces_a_pid() {
        for (case, tree, start) in [
            ("alive",                     Tree::new().alive(7, 5),                                      Some(5)),
            ("gone",                      Tree::new(),                                                  None),
            ("a zombie",                  Tree::new().process(7, "java", 'Z', 1, 1, 5),                 None),
            ("a zombie leader that runs", Tree::new().process(7, "java", 'Z', 1, 2, 5),                 Some(5)),
            ("since when is not known",   Tree::new().alive(7, 5).link("proc/self/ns/time", "time:[5]"), None),
            ("hidden",                    Tree::new().without("proc/1").file("proc/self/status", ""),   None),
        ] {
            let found = of(&tree.host(), 7);
            assert_eq!(found.as_ref().map(|owner| (owner.pid, owner.start)), start.map(|start| (7, Some(start))), "{case}");
        }
    }

    #[test]
    fn our_parent_here_is_the_real_one() {
        let here = Host::new(Path::new("/"));
        let found = find(&here, Form::Allocate, None, &Service::default(), &mut Notes::default());
        match std::os::unix::process::parent_id() {
            0 | 1 => fixture::skip("our_parent_here_is_the_real_one", "it has no parent here"),
            parent => assert_pid("the test runner", &found, parent),
        }
    }
}
