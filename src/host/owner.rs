//! Who becomes the owner of what is asked for: as a rule the process that started us.

use std::path::PathBuf;

use super::Host;
use super::process::Process;
use crate::assignment::Owner;
use crate::error::Error;
use crate::notes::Notes;

/// What administrators wrap the discovery script in; each ends as soon as gpu-coord does.
#[rustfmt::skip] // a table
const WRAPPERS: [&str; 36] = [
    "sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "fish", "busybox", "toybox",
    "sudo", "sudo-rs", "doas", "su", "runuser", "setpriv", "capsh", "gosu", "env", "timeout", "nice", "ionice", "chrt",
    "taskset", "numactl", "prlimit", "setsid", "setarch", "stdbuf", "flock", "nohup", "time", "strace", "unshare", "nsenter",
];

/// What a JVM is called.
const JVM: &str = "java";

/// A process has no more ancestors than this, unless the answers of `/proc` go round in circles.
const MOST_ANCESTORS: usize = 64;

/// A wrapper that has run for this long was not started for one call.
const SETTLED_SECONDS: u64 = 5;

/// What systemd says in the environment of a unit's processes. A value that is not of its form is no value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    /// `$SYSTEMD_EXEC_PID`: the process that the service manager started.
    exec_pid: Option<u32>,
    /// `$MAINPID`: the unit's main process, in commands that run beside it.
    main_pid: Option<u32>,
    /// `$INVOCATION_ID`: this run of the unit.
    invocation: Option<String>,
}

/// The form of the command that looks for an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `gpu-coord AMOUNT`: often wrapped in a script, since Flink cannot pass it options with blanks.
    Discover,
    Allocate,
    DeallocateAll,
}

/// Whose units are asked for or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Owner(Owner),
    /// `deallocateAll` only: the process with this pid has ended, and what a dead owner of this pid left can
    /// be released.
    Gone(u32),
    /// `deallocateAll` only: what this run of a systemd unit holds.
    Invocation(String),
}

impl Service {
    /// `variable` looks a variable of the environment up.
    pub(crate) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Service {
        let pid = |name: &str| variable(name).and_then(|value| parse_pid(&value));
        Service {
            exec_pid: pid("SYSTEMD_EXEC_PID"),
            main_pid: pid("MAINPID"),
            invocation: variable("INVOCATION_ID").filter(|id| is_invocation(id)),
        }
    }

    /// What an assignment records of the unit that asked.
    pub(crate) fn invocation(&self) -> Option<&str> {
        self.invocation.as_deref()
    }

    /// The other processes of a unit inherit the variable: the pid tells.
    fn has_started_us(&self) -> bool {
        self.exec_pid == Some(std::process::id())
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
    let is_wrapped = form == Form::Discover && is_called(host, &parent, &WRAPPERS);
    let process = if is_wrapped { behind(host, parent, notes) } else { parent };
    Ok(Found::Owner(as_owner(host, &process)))
}

/// Fails unless the owner is still the process that it was: pids are reused.
pub(crate) fn recheck(host: &Host, owner: &Owner) -> Result<(), Error> {
    let pid = owner.pid;
    match host.process(pid)? {
        None => Err(Error::Owner(format!("the owner, pid {pid}, has exited"))),
        Some(process) if process.is_dead() => Err(Error::Owner(format!("the owner, pid {pid}, has exited"))),
        Some(process) if !process.may_have_started_at(owner.start) => {
            Err(Error::Owner(format!("the owner, pid {pid}, has exited, and its pid is another process now")))
        }
        Some(_) => Ok(()),
    }
}

/// The process that `option` names. An operator may name any, pid 1 too.
fn named(host: &Host, form: Form, pid: u32, option: &str) -> Result<Found, Error> {
    let problem = match host.process(pid)? {
        _ if pid == 0 => "is no process",
        None if form == Form::DeallocateAll => return Ok(Found::Gone(pid)),
        None => "does not exist",
        Some(process) if process.is_dead() && form == Form::DeallocateAll => return Ok(Found::Gone(pid)),
        Some(process) if process.is_dead() => "has exited (it is a zombie)",
        Some(_) if host.is_thread(pid)? => "is a thread and not a process",
        Some(process) => return Ok(Found::Owner(as_owner(host, &process))),
    };
    Err(Error::Usage(format!("{option}: pid {pid} {problem}; name the process that holds the units")))
}

/// Our parent is the service manager, which holds nothing.
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
            "started by the service manager, which is no owner; start the process that is to hold the units with \
             `gpu-coord exec AMOUNT -- COMMAND`, or name it with --owner PID"
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
        match host.process(pid)?.filter(|process| !process.is_dead()) {
            Some(process) => return Ok(process),
            None => format!("the parent process, pid {pid}, has exited"),
        }
    };
    Err(Error::Owner(format!("{problem}; name the process that is to hold the units with --owner PID")))
}

/// A container's pid 1 is often the JVM itself; the host's never asked for a GPU.
fn may_be_the_hosts(host: &Host) -> bool {
    host.pid_namespace().is_none() || host.is_initial_pid_namespace()
}

fn parent_pid(host: &Host) -> Result<u32, Error> {
    if host.is_here() {
        return Ok(u32::try_from(nix::unistd::getppid().as_raw()).unwrap_or(0));
    }
    // Below another root, pids may be counted in another namespace than ours.
    let path = host.proc("self/stat");
    let own = std::fs::read(&path).ok().and_then(|stat| super::process::parse_stat(&stat));
    let problem =
        "gpu-coord is no process there; name the process that is to hold the units with --owner PID";
    own.map(|own| own.parent).ok_or_else(|| Error::File { path, problem: problem.to_owned() })
}

/// The JVM that a wrapper was started from, or else the wrapper.
fn behind(host: &Host, wrapper: Process, notes: &mut Notes) -> Process {
    let Process { pid, name, .. } = &wrapper;
    if let Some(java) = java_above(host, &wrapper) {
        notes.detail(format!("the owner is pid {}, the JVM that started {name}, pid {pid}", java.pid));
        return java;
    }
    let age = wrapper.start.and_then(|start| host.age(start));
    let is_settled = age.is_some_and(|age| age.as_secs() >= SETTLED_SECONDS);
    if !is_settled && !wrapper.is_session_leader() {
        notes.warn(format!(
            "the owner is {name}, pid {pid}, which has just been started and is not below a JVM; the units are free \
             again when it exits: let it `exec` gpu-coord, or name the owner with --owner PID"
        ));
    }
    wrapper
}

fn java_above(host: &Host, wrapper: &Process) -> Option<Process> {
    let mut pid = wrapper.parent;
    for _ in 0..MOST_ANCESTORS {
        let process = host.process(pid).ok().flatten()?;
        if is_called(host, &process, &[JVM]) {
            return Some(process);
        }
        pid = process.parent;
    }
    None
}

/// By its own name, its executable or its first argument: a shell that was started by the `#!` of a script is named
/// after the script.
fn is_called(host: &Host, process: &Process, names: &[&str]) -> bool {
    let by_executable = host.executable(process.pid);
    let by_argument = host.arguments(process.pid).and_then(|words| words.into_iter().next());
    let paths = [Some(process.name.clone().into()), by_executable, by_argument.map(Into::into)];
    let mut called = paths.iter().flatten().filter_map(|path: &PathBuf| path.file_name()?.to_str());
    // A login shell's first argument begins with a dash.
    called.any(|name| names.contains(&name.trim_start_matches('-')))
}

/// The living process `pid` as an owner; `None` if it has ended, or cannot be told from a later one.
pub(crate) fn of(host: &Host, pid: u32) -> Option<Owner> {
    let process = host.process(pid).ok()??;
    let is_known = process.start.is_some() && !process.is_dead();
    is_known.then(|| as_owner(host, &process))
}

fn as_owner(host: &Host, process: &Process) -> Owner {
    Owner {
        pid: process.pid,
        start: process.start,
        boot: host.boot_id().map(str::to_owned),
        pid_namespace: host.pid_namespace(),
        uid: host.uid(process.pid),
    }
}
