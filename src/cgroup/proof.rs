//! The proof that a group denies what it should, and nothing that was granted.
//!
//! A child of ours enters the group and calls faccessat(2), as root: the kernel's device filter answers EPERM. Unlike
//! open(2), which can initialise a GPU or hang, this does not involve the driver. If none of the denied nodes exists,
//! the child creates one that nobody else sees.

#![expect(unsafe_code, reason = "fork(2) has no safe form in a program that may have threads")]

mod child;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::makedev;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, pipe2};

use crate::cgroup::denylist::{Denylist, DeviceRules};
use crate::cgroup::members::{self, PROCESSES};
use crate::cgroup::membership::Location;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::host::node::{NodeNumber, number_at};
use child::Task;

/// A node whose access the child checks.
#[derive(Debug)]
struct Question {
    path: PathBuf,
    number: NodeNumber,
    is_denied: bool,
}

/// A denied node that only the child sees: on a private file system, mounted over a directory in a private mount
/// namespace.
#[derive(Debug)]
struct Temporary {
    directory: CString,
    number: NodeNumber,
}

/// Fails unless the group denies and allows what the rules say. `nodes`: the paths of possible GPU nodes.
pub(super) fn prove(
    host: &Host,
    group: &Location,
    rules: &DeviceRules,
    nodes: &[PathBuf],
    deadline: Deadline,
) -> Result<(), Error> {
    let mut questions = questions(rules, nodes);
    let temporary = temporary(host, &rules.denied, &questions);
    questions.extend(temporary.iter().map(|temporary| Question {
        path: node_in(&temporary.directory),
        number: temporary.number,
        is_denied: true,
    }));
    let answers = ask(host, group, &questions, temporary.as_ref(), deadline)?;
    questions.iter().zip(answers).try_for_each(|(question, answer)| question.judge(answer, group))
}

fn questions(rules: &DeviceRules, nodes: &[PathBuf]) -> Vec<Question> {
    let question = |path: &PathBuf| {
        let number = number_at(path)?;
        let is_denied = rules.denied.denies(number);
        let matters = is_denied || rules.granted.contains(&number);
        matters.then(|| Question { path: path.clone(), number, is_denied })
    };
    nodes.iter().filter_map(question).collect()
}

/// `None` if a denied node exists, or nothing is denied.
fn temporary(host: &Host, denied: &Denylist, questions: &[Question]) -> Option<Temporary> {
    let number = denied.numbers().next().filter(|_| !questions.iter().any(|question| question.is_denied))?;
    let directory = CString::new(host.proc("").as_os_str().as_bytes()).ok()?;
    Some(Temporary { directory, number })
}

fn node_in(directory: &CStr) -> PathBuf {
    Path::new(std::ffi::OsStr::from_bytes(directory.to_bytes())).join("node")
}

impl Question {
    /// `answer`: the error number, or 0.
    fn judge(&self, answer: i32, group: &Location) -> Result<(), Error> {
        let is_refused = answer == libc::EPERM;
        if is_refused == self.is_denied {
            return Ok(());
        }
        let (path, number, directory) = (self.path.display(), self.number, group.directory.display());
        let problem = match self.is_denied {
            true if answer == 0 => "can still be opened by the processes of".to_owned(),
            true => format!("is not proven to be denied ({}) to", io::Error::from_raw_os_error(answer)),
            false => "was granted and is denied by a group above".to_owned(),
        };
        Err(Error::Isolation(format!("{path} ({number}) {problem} {directory}")))
    }
}

/// Runs the child; returns one answer for each question.
fn ask(
    host: &Host,
    group: &Location,
    questions: &[Question],
    temporary: Option<&Temporary>,
    deadline: Deadline,
) -> Result<Vec<i32>, Error> {
    let failed = |what: &str, error: io::Error| {
        let problem = members::explain(&error);
        Error::Isolation(format!("cannot prove what {} denies: {what}: {problem}", group.directory.display()))
    };
    let open = |directory: &Path| {
        let file = File::options().write(true).open(directory.join(PROCESSES));
        file.map_err(|error| failed("its list of processes", error))
    };
    let processes = open(&group.directory)?;
    let above = open(group.directory.parent().unwrap_or(&group.directory))?;
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(|error| failed("pipe", error.into()))?;
    let descriptors = host.own_descriptors().map_err(|error| failed("its own descriptors", error))?;
    let paths: Vec<CString> = questions.iter().filter_map(|it| c_path(&it.path)).collect();
    let node = temporary.and_then(|temporary| c_path(&node_in(&temporary.directory)));
    let task = Task {
        parent: getpid(),
        open: &descriptors,
        processes: processes.as_raw_fd(),
        above: above.as_raw_fd(),
        answers: writer.as_raw_fd(),
        temporary: temporary.zip(node.as_deref()).map(|(temporary, node)| {
            let NodeNumber { major, minor } = temporary.number;
            (temporary.directory.as_c_str(), node, makedev(major.into(), minor.into()))
        }),
        paths: &paths,
    };
    // SAFETY: the child makes only system calls, on memory that was allocated before.
    let child = match unsafe { fork() }.map_err(|error| failed("fork", error.into()))? {
        // SAFETY: this is that child.
        ForkResult::Child => unsafe { child::answer(&task) },
        ForkResult::Parent { child } => child,
    };
    drop(writer);
    let answers = listen(File::from(reader), deadline);
    // It has ended, or must not continue: while it is in the group, the group cannot be removed.
    let _ = kill(child, Signal::SIGKILL);
    reap(child, deadline);
    match answers.map_err(|error| failed("pipe", error))? {
        None => Err(deadline.error("the proof of the isolation")),
        Some(answers) => read(&answers, questions.len()).map_err(|(what, error)| failed(what, error)),
    }
}

/// Waits for the killed child. One that hangs in the kernel does not react, and is given up at the deadline.
fn reap(child: Pid, deadline: Deadline) {
    while waitpid(child, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive) && !deadline.has_passed() {
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Everything that the child reports; `None` if the deadline passed.
fn listen(mut reader: File, deadline: Deadline) -> io::Result<Option<Vec<i32>>> {
    let mut bytes = Vec::new();
    loop {
        let left = PollTimeout::try_from(deadline.left()).unwrap_or(PollTimeout::MAX);
        if poll(&mut [PollFd::new(reader.as_fd(), PollFlags::POLLIN)], left)? == 0 {
            return Ok(None);
        }
        let mut part = [0; 4096];
        match reader.read(&mut part)? {
            0 => break,
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
    let (words, _) = bytes.as_chunks::<4>();
    Ok(Some(words.iter().map(|word| i32::from_ne_bytes(*word)).collect()))
}

/// The report consists of two error numbers, for creating the node and for entering the group, and then the answers.
fn read(words: &[i32], count: usize) -> Result<Vec<i32>, (&'static str, io::Error)> {
    let error = |at: usize| words.get(at).copied().unwrap_or(libc::ECHILD);
    for (at, what) in [(0, "a node to ask for"), (1, "entering the group")] {
        if error(at) != 0 {
            return Err((what, io::Error::from_raw_os_error(error(at))));
        }
    }
    match words.get(2..) {
        Some(answers) if answers.len() == count => Ok(answers.to_vec()),
        _ => Err(("its answers", io::ErrorKind::UnexpectedEof.into())),
    }
}
