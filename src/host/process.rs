//! Processes, as `/proc` shows them.
//!
//! A process counts as gone only when that is certain: `/proc` can hide living processes (`hidepid`), belong to another
//! pid namespace, or not be mounted at all. Taking absence of evidence for death would give a live owner's units away.
//!
//! Not here: what a process runs (`program`), what its end means for an assignment (`liveness`), and who becomes an
//! owner (`owner`).

use std::fs::{self, File};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::Host;
use super::file;
use crate::error::Error;

/// A second look suffices, unless the process is replaced once more in the meantime.
const LOOKS: usize = 10;

/// A bound for the search among ancestors, should the answers of `/proc` form a circle.
pub(crate) const MOST_ANCESTORS: usize = 64;

/// A process or a thread: `/proc/TID/stat` can be read although `/proc` does not list threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The first 15 bytes of the executable's file name, unless the process has renamed itself.
    pub(crate) name: String,
    /// `R`, `S`, `D`, `Z`, ... of proc_pid_stat(5).
    pub(crate) state: u8,
    /// 0 if the parent is outside this pid namespace.
    pub(crate) parent: u32,
    pub(crate) session: i32,
    pub(crate) threads: u32,
    /// Clock ticks from boot to its start, in the initial time namespace; `None` if not known.
    pub(crate) start: Option<u64>,
    /// Whether it is a thread of a process with another pid.
    pub(crate) is_thread: bool,
}

impl Process {
    /// A zombie whose other threads still run, or hang in a driver, is not dead: it has its devices open.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// Whether it runs only if somebody continues it.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Whether it may have been seen while another thread of the process took over its pid. execve(2) does that unless
    /// the first thread calls it (`de_thread` in the kernel's fs/exec.c): the task that had the pid then looks like a
    /// thread and, once released, like a zombie without threads, although the process lives.
    fn may_be_replaced(&self) -> bool {
        self.is_thread || self.threads == 0
    }

    pub(crate) fn is_session_leader(&self) -> bool {
        u32::try_from(self.session) == Ok(self.pid)
    }

    /// Whether it may be the process that was started at `start`. An unknown start excludes nothing.
    pub(crate) fn may_have_started_at(&self, start: Option<u64>) -> bool {
        self.start.zip(start).is_none_or(|(own, other)| own == other)
    }
}

/// What is in `/proc/PID/status` but not in `stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// The effective user id.
    pub(crate) uid: u32,
    /// Its pid in every pid namespace from that of `/proc` down to its own; empty before Linux 4.1.
    pub(crate) pids: Vec<u32>,
}

/// Parses proc_pid_stat(5). The start is relative to the reader's time namespace.
pub(crate) fn parse_stat(stat: &[u8]) -> Option<Process> {
    // The name may contain anything, including blanks and parentheses ("UVM global queue", "a) R 1 (b").
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace();
    let mut fields = (3..).zip(fields);
    // Only valid for ascending numbers.
    let mut field = |number| fields.find(|(at, _)| *at == number).map(|(_, text)| text);
    Some(Process {
        pid: str::from_utf8(&stat[..open]).ok()?.trim().parse().ok()?,
        name: String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned(),
        state: *field(3)?.as_bytes().first()?,
        parent: field(4)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        threads: field(20)?.parse().ok()?,
        start: Some(field(22)?.parse().ok()?),
        // The signal that is sent to the parent at its end. Only a process has one (`thread_group_leader` in the
        // kernel's include/linux/sched/signal.h).
        is_thread: field(38)?.parse::<i32>().ok()? < 0,
    })
}

pub(crate) fn parse_status(status: &[u8]) -> Option<Status> {
    let mut lines = status.split(|byte| *byte == b'\n');
    // Only valid in the order of the lines.
    let mut numbers = |name: &[u8]| -> Option<Vec<u32>> {
        let field = lines.find_map(|line| line.strip_prefix(name))?;
        str::from_utf8(field).ok()?.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
    };
    Some(Status { uid: *numbers(b"Uid:")?.get(1)?, pids: numbers(b"NSpid:").unwrap_or_default() })
}

impl Host {
    /// `None` only if it is certain that there is no such process.
    pub(crate) fn process(&self, pid: u32) -> Result<Option<Process>, Error> {
        self.settled(pid, || self.read_of(pid, "stat"))
    }

    /// The same for a process that is looked at repeatedly: its file stays open, and can never describe a later process
    /// with the same pid.
    pub(crate) fn watched_process(&self, pid: u32) -> Result<Option<Process>, Error> {
        let mut watched = self.found.watched.borrow_mut();
        self.settled(pid, || {
            let open = watched.take().filter(|(of, _)| *of == pid);
            self.look(pid, "stat", |path| {
                let file = open.map_or_else(|| File::open(path).map(Rc::new), |(_, file)| Ok(file))?;
                file::read_line(&watched.insert((pid, file)).1)
            })
        })
    }

    /// Parses a `stat`, which is read again if it may describe a task that no longer has the pid.
    fn settled(
        &self,
        pid: u32,
        mut read: impl FnMut() -> Result<Option<Vec<u8>>, Error>,
    ) -> Result<Option<Process>, Error> {
        let mut looks = 1;
        loop {
            let Some(stat) = read()? else { return Ok(None) };
            let process = self.parsed(pid, &stat)?;
            if looks == LOOKS || !process.may_be_replaced() {
                return Ok(Some(process));
            }
            looks += 1;
        }
    }

    fn parsed(&self, pid: u32, stat: &[u8]) -> Result<Process, Error> {
        let process = parse_stat(stat).ok_or_else(|| self.strange(pid, "stat"))?;
        let start = process.start.and_then(|ticks| self.in_initial_time(ticks));
        Ok(Process { start, ..process })
    }

    /// The process as it was first seen in this run, so that the process that is judged alive is also the one that is
    /// recorded. For whether it is still alive see [`Host::process`].
    pub(crate) fn known_process(&self, pid: u32) -> Result<Option<Process>, Error> {
        if let Some(process) = self.found.processes.borrow().get(&pid) {
            return Ok(Some(process.clone()));
        }
        let process = self.process(pid)?;
        self.found.processes.borrow_mut().extend(process.clone().map(|process| (pid, process)));
        Ok(process)
    }

    /// `None` only if it is certain that there is no such process.
    pub(crate) fn status(&self, pid: u32) -> Result<Option<Status>, Error> {
        let Some(status) = self.read_of(pid, "status")? else { return Ok(None) };
        parse_status(&status).map(Some).ok_or_else(|| self.strange(pid, "status"))
    }

    /// Its control groups, a line for each hierarchy: `/proc/PID/cgroup` of cgroups(7).
    pub(crate) fn cgroup(&self, pid: u32) -> Result<String, Error> {
        let groups = self.read_of(pid, "cgroup")?;
        let groups = groups.ok_or_else(|| Error::Owner(format!("pid {pid} has exited")))?;
        String::from_utf8(groups).map_err(|_| self.strange(pid, "cgroup"))
    }

    /// The descriptors that this process has open.
    pub(crate) fn own_descriptors(&self) -> io::Result<Vec<RawFd>> {
        let entries = fs::read_dir(self.proc("self/fd"))?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// The effective user id, if it can be read.
    pub(crate) fn uid(&self, pid: u32) -> Option<u32> {
        if self.is_here() {
            // The directory belongs to the effective user, unlike the files in it even for a process that is not
            // dumpable (`task_dump_owner` in the kernel's fs/proc/base.c). Reading `status` takes ten times as long.
            let directory = fs::metadata(self.proc(pid.to_string()));
            return directory.ok().map(|directory| directory.uid());
        }
        self.status(pid).ok().flatten().map(|status| status.uid)
    }

    /// Every process that `/proc` lists.
    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(self.proc(""))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_str().and_then(|name| name.parse().ok())));
        Ok(names.collect::<io::Result<Vec<Option<u32>>>>()?.into_iter().flatten().collect())
    }

    /// `None` only if it is certain that there is no such process.
    fn read_of(&self, pid: u32, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.look(pid, name, |path| file::read_piece(path))
    }

    /// `None` only if it is certain that there is no such process.
    fn look(
        &self,
        pid: u32,
        name: &str,
        read: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.check_proc()?;
        let path = self.proc(format!("{pid}/{name}"));
        match read(&path) {
            Ok(text) => Ok(Some(text)),
            // It existed when the file was opened, and has been reaped since.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.settle_absence(pid).map(|()| None),
            Err(error) => Err(Error::io("read", path)(error)),
        }
    }

    /// `/proc` shows no such process. Fails unless it is certain that there is none, and that it is not just hidden.
    fn settle_absence(&self, pid: u32) -> Result<(), Error> {
        let is_absent = if self.is_here() {
            is_no_process(pid)
        } else {
            // No system call knows another host. Pid 1 always exists, and is hidden if anything is.
            fs::symlink_metadata(self.proc("1")).is_ok()
        };
        let problem =
            "cannot be seen, and may be hidden by the hidepid option of /proc; run gpu-coord as root, or \
             as a member of the group that the gid option names"
                .to_owned();
        if is_absent { Ok(()) } else { Err(Error::File { path: self.proc(pid.to_string()), problem }) }
    }

    fn strange(&self, pid: u32, name: &str) -> Error {
        let problem = format!("not in the form of proc_pid_{name}(5)");
        Error::File { path: self.proc(format!("{pid}/{name}")), problem }
    }
}

/// Only ESRCH proves it: EPERM means another user's living process.
fn is_no_process(pid: u32) -> bool {
    match i32::try_from(pid) {
        // For kill(2), 0 means our own process group.
        Ok(0) | Err(_) => true,
        Ok(pid) => kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::super::fixture::{Running, Tree, compile, skip, stat, wait_for};
    use super::*;

    fn here() -> Host {
        Host::new(Path::new("/"))
    }

    #[test]
    fn a_name_may_hold_anything() {
        for name in ["java", "UVM global queue", "a) R 1 (b", "", ")", "(", "x\ny", "123 (x) Z 1 1 1"] {
            let process = parse_stat(stat(4711, name, 'S', 17, 42, 3, 99).as_bytes()).unwrap();
            assert_eq!(process.name, name);
            assert_eq!((process.pid, process.parent, process.session), (4711, 17, 42), "{name}");
            assert_eq!((process.state, process.threads, process.start), (b'S', 3, Some(99)), "{name}");
        }
        assert_eq!(
            parse_stat(
                b"7 (\xff\xfe) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17"
            )
            .unwrap()
            .pid,
            7
        );
    }

    #[test]
    fn what_is_no_stat_line_is_no_process() {
        let whole = stat(4711, "java", 'S', 17, 42, 3, 99);
        let cut = whole.rfind(" 99 ").unwrap();
        for text in ["", "4711", "4711 (java", "4711 java S 17", ") S 1 (", "x (java) S 1 1 1", &whole[..cut]]
        {
            assert_eq!(parse_stat(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_zombie_is_dead_once_it_is_its_own_last_thread() {
        for (state, threads, is_dead) in [
            ('R', 1, false), ('S', 1, false), ('D', 1, false), ('T', 1, false), ('t', 1, false), ('I', 1, false),
            ('Z', 1, true),  ('Z', 0, true),  ('X', 0, true),  ('x', 0, true),
            ('Z', 2, false), ('X', 2, false),
        ] {
            let process = parse_stat(stat(4711, "java", state, 1, 1, threads, 5).as_bytes()).unwrap();
            assert_eq!(process.is_dead(), is_dead, "{state} with {threads} threads");
        }
    }

    #[test]
    fn a_status_tells_user_and_pids() {
        let status = "Name:\tjava\nTgid:\t12\nPid:\t14\nUid:\t1000\t998\t0\t1\nNSpid:\t12\t7\t1\n";
        let expected = Status { uid: 998, pids: vec![12, 7, 1] };
        assert_eq!(parse_status(status.as_bytes()), Some(expected));
        let old = parse_status(b"Tgid:\t12\nUid:\t0\t0\t0\t0\n").unwrap();
        assert_eq!(old.pids, Vec::<u32>::new(), "Linux before 4.1");
        assert_eq!(parse_status(b"Tgid:\t12\n"), None);
    }

    /// What is said of pid 4711, which has no directory.
    #[track_caller]
    fn assert_absence(tree: &Tree, expected: Result<Option<Process>, &str>) {
        match (tree.host().process(4711), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(words)) => {
                let text = format!("{error:#}");
                assert!(text.contains(words), "{text}");
            }
            (found, expected) => panic!("{found:?} and not {expected:?}"),
        }
    }

    #[test]
    fn absence_is_certain_only_where_pid_1_is_seen() {
        assert_absence(&Tree::new(), Ok(None));
        let hidden = Tree::new().without("proc/1").file("proc/self/status", "");
        assert_absence(&hidden, Err("hidepid"));
    }

    #[test]
    fn no_proc_is_no_proof() {
        assert_absence(&Tree::empty(), Err("mount /proc"));
        assert_absence(&Tree::empty().file("proc/cmdline", "quiet"), Err("mount /proc"));
    }

    #[test]
    fn what_cannot_be_read_is_no_proof() {
        // A directory in the place of the file is an error of read(2), for root too.
        assert_absence(&Tree::new().file("proc/4711/stat/x", ""), Err("cannot read"));
        assert_absence(&Tree::new().file("proc/4711/stat", "4711 (java) S 1"), Err("proc_pid_stat(5)"));
        assert_absence(&Tree::new().file("proc/4711/stat", ""), Err("proc_pid_stat(5)"));
    }

    #[test]
    fn only_processes_are_listed() {
        let tree = Tree::new().alive(7, 1).file("proc/stat", "").file("proc/12x/stat", "");
        let mut pids = tree.host().pids().unwrap();
        pids.sort_unstable();
        assert_eq!(pids, [1, 7]);
    }

    #[test]
    fn a_process_that_has_been_reaped_is_gone() {
        let pid = Running::start("sleep", &["60"]).end();
        assert_eq!(here().process(pid).unwrap(), None);
        assert_eq!(here().status(pid).unwrap(), None);
        for pid in [0, 4_194_305, u32::MAX] {
            assert_eq!(here().process(pid).unwrap(), None, "pid {pid}");
        }
    }

    /// Who looks all the time meets one in some dozens of the moments in which a thread takes the pid of its process.
    #[test]
    fn a_process_whose_thread_replaces_it_lives() {
        let source = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
            static char *self, left[16];\n\
            static void *next(void *unused) { usleep(2000); execl(self, self, left, (char *)0); _exit(1); }\n\
            int main(int argc, char **argv) { pthread_t thread; int times = argc > 1 ? atoi(argv[1]) : 400;\n\
            if (argc == 1) { puts(\"ready\"); fflush(stdout); }\n\
            if (times == 0) { puts(\"done\"); fflush(stdout); for (;;) pause(); }\n\
            self = argv[0]; snprintf(left, sizeof left, \"%d\", times - 1);\n\
            if (pthread_create(&thread, 0, next, 0)) return 1;\n\
            for (;;) pause(); }\n";
        let directory = tempfile::tempdir().unwrap();
        let mut running = Running::start(compile(directory.path(), source), &[]);
        assert_eq!(running.line(), "ready");
        let pid = running.pid();
        let looker = std::thread::spawn(move || {
            let (host, mut wrong) = (here(), Vec::new());
            let lives = |found: &Option<Process>| {
                found.as_ref().is_some_and(|found| !found.is_dead() && !found.is_thread)
            };
            while fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| !words.ends_with(b"\0\x30\0")) {
                let found = [host.process(pid).unwrap(), host.watched_process(pid).unwrap()];
                wrong.extend(found.into_iter().filter(|found| !lives(found)));
            }
            wrong
        });
        assert_eq!(running.line(), "done");
        assert_eq!(looker.join().unwrap(), []);
    }

    #[test]
    fn a_process_that_ends_while_it_is_read_is_gone() {
        let running = Running::start("sleep", &["60"]);
        let open = fs::File::open(format!("/proc/{}/stat", running.pid())).unwrap();
        running.end();
        // Opened anew by its descriptor, it is found and has nothing to say: ESRCH.
        let tree = Tree::new().link("proc/4711/stat", &format!("/proc/self/fd/{}", open.as_raw_fd()));
        assert_absence(&tree, Ok(None));
        assert_eq!(fs::read(tree.path("proc/4711/stat")).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_watched_process_is_not_taken_for_a_later_one() {
        let (running, here) = (Running::start("sleep", &["60"]), here());
        let pid = running.pid();
        let watched = || here.watched_process(pid).unwrap();
        assert_eq!(watched(), here.process(pid).unwrap());
        let other = Running::start("sleep", &["60"]);
        assert_eq!(here.watched_process(other.pid()).unwrap(), here.process(other.pid()).unwrap());
        assert!(watched().is_some());
        running.end();
        assert_eq!(watched(), None);

        let tree = Tree::new().alive(7, 5);
        let host = tree.host();
        let start = || host.watched_process(7).unwrap().unwrap().start;
        assert_eq!(start(), Some(5));
        fs::remove_file(tree.path("proc/7/stat")).unwrap();
        let tree = tree.alive(7, 6);
        assert_eq!((start(), tree.host().process(7).unwrap().unwrap().start), (Some(5), Some(6)));
    }

    #[test]
    fn a_real_zombie_is_dead() {
        let zombie = Running::start("true", &[]).becomes_a_zombie();
        let process = here().process(zombie.pid()).unwrap().unwrap();
        assert_eq!((process.state, process.is_dead()), (b'Z', true));
    }

    #[test]
    fn a_zombie_leader_with_a_living_thread_lives() {
        let source = "#include <pthread.h>\n#include <unistd.h>\n\
            static void *stay(void *x) { for (;;) pause(); return x; }\n\
            int main(void) { pthread_t t; pthread_create(&t, 0, stay, 0); pthread_exit(0); }\n";
        let directory = tempfile::tempdir().unwrap();
        let running = Running::start(compile(directory.path(), source), &[]);
        let process = wait_for(running.pid(), |process| process.state == b'Z');
        assert_eq!((process.threads, process.is_dead()), (2, false));
    }

    #[test]
    fn a_thread_is_no_process() {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = stopped.recv();
        });
        let thread_id = u32::try_from(told.recv().unwrap()).unwrap();
        let is_thread =
            |id| here().process(id).unwrap().expect("the kernel answers for threads too").is_thread;
        assert!(is_thread(thread_id));
        assert!(!is_thread(std::process::id()));
        drop(stop);
        thread.join().unwrap();
    }

    /// Whose files in `/proc` are root's.
    #[test]
    fn the_user_of_a_process_that_may_not_be_dumped_is_its_own() {
        if !nix::unistd::geteuid().is_root() {
            skip("the_user_of_a_process_that_may_not_be_dumped_is_its_own", "it becomes another user");
            return;
        }
        let source = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/prctl.h>\n#include <unistd.h>\n\
            int main(void) { if (setresuid(1234, 4711, 0) || prctl(PR_SET_DUMPABLE, 0)) return 1;\n\
            puts(\"ready\"); fflush(stdout); for (;;) pause(); }\n";
        let directory = tempfile::tempdir().unwrap();
        let mut running = Running::start(compile(directory.path(), source), &[]);
        assert_eq!(running.line(), "ready");
        let pid = running.pid();
        assert_eq!(fs::metadata(format!("/proc/{pid}/stat")).unwrap().uid(), 0);
        assert_eq!(here().status(pid).unwrap().unwrap().uid, 4711);
        assert_eq!(here().uid(pid), Some(4711));
        assert_eq!(here().uid(running.end()), None);
    }
}
