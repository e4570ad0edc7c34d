//! `status` on a real terminal, and `status --watch`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::iter;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;

use crate::owners::is_on_the_host;
use crate::running::{Running, wait_until};
use crate::sandbox::{Process, Sandbox, is_root};

/// What the program shows on a terminal of the given width.
fn on_terminal(mut command: Command, columns: u16) -> String {
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let mut child = command.stdout(Stdio::from(pty.slave)).spawn().unwrap();
    drop(command); // it has the terminal open still
    let mut shown = Vec::new();
    // On Linux the end of a terminal is EIO.
    let _ = File::from(pty.master).read_to_end(&mut shown);
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}

#[test]
fn a_terminal_is_given_colours_and_lines_of_its_width() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(2);
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let status = |no_color: bool| {
        let mut command = host.program("status");
        command.envs(no_color.then_some(("NO_COLOR", "1")));
        command
    };
    let wide = on_terminal(status(false), 200);
    assert!(wide.contains("1      Simulated GPU  -/16384 MiB  \x1b[32mfree\x1b[0m   -"), "{wide:?}");
    let plain = on_terminal(status(true), 200);
    assert!(plain.contains("1      Simulated GPU  -/16384 MiB  free   -"), "{plain:?}");
    for columns in [1, 7, 8, 30] {
        let narrow = on_terminal(status(true), columns);
        assert!(narrow.lines().all(|line| line.chars().count() <= usize::from(columns)), "{narrow:?}");
        assert_eq!(narrow.lines().count(), 3, "{narrow:?}");
    }
    let piped = host.command("status").output().unwrap();
    assert!(!String::from_utf8(piped.stdout).unwrap().contains('\x1b'));
}

/// `status --watch` on a terminal that is its controlling one, read as it comes.
struct Screen {
    child: Child,
    terminal: File,
    /// What was shown.
    shown: Vec<u8>,
}

/// What does not come within it never does.
const PATIENCE: Duration = Duration::from_secs(60);

/// It clears the terminal, and begins at its top left.
const ANEW: &str = "\x1b[2J\x1b[H";

impl Screen {
    fn start(host: &Sandbox, columns: u16) -> Screen {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let program = host.program("status --watch");
        let mut command = Command::new("env");
        // Whoever started the tests may have had the signal ignored, as a shell does for what runs beside it.
        command.args(["--default-signal=INT", "setsid", "--ctty"]);
        command.arg(program.get_program()).args(program.get_args());
        command.env_clear().current_dir(host.path());
        let terminal = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = command.stdin(terminal()).stdout(terminal()).stderr(terminal()).spawn().unwrap();
        Screen { child, terminal: File::from(pty.master), shown: Vec::new() }
    }

    /// What is on the screen once it has shown `text`, and every byte of it came.
    #[track_caller]
    fn until(&mut self, text: &str) -> String {
        loop {
            let shown = self.shown();
            let screen = shown.rsplit(ANEW).next().unwrap();
            if screen.contains(text) && screen.ends_with('\n') {
                return screen.to_owned();
            }
            self.read(text);
        }
    }

    #[track_caller]
    fn read(&mut self, text: &str) {
        let mut polled = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut polled, PollTimeout::try_from(PATIENCE).unwrap()).unwrap();
        assert!(ready > 0, "{text:?} was never shown: {:?}", self.shown());
        let mut bytes = [0; 4096];
        let count = self.terminal.read(&mut bytes).unwrap();
        self.shown.extend_from_slice(&bytes[..count]);
    }

    /// A read may end within a character or a line end.
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown).replace("\r\n", "\n")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_is_drawn_anew_until_ctrl_c() {
    let host = Sandbox::with_gpus(2);
    let mut screen = Screen::start(&host, 200);
    let first = screen.until("\x1b[32mfree\x1b[0m");
    assert!(screen.shown().starts_with(ANEW) && first.starts_with("INDEX  MODEL"), "{:?}", screen.shown());
    let mut named = Command::new("bash");
    named
        .args(["-c", "exec -a $'a\\e[31m\\nb\\u009b1m' sleep 1000"])
        .env("LC_ALL", "C.UTF-8")
        .stdout(Stdio::null());
    let mut named = named.spawn().unwrap();
    let comm = format!("/proc/{}/comm", named.id());
    wait_until("it sleeps", || std::fs::read_to_string(&comm).unwrap() == "sleep\n");
    host.answers(&format!("allocate 1 --owner {}", named.id()), "0\n");
    let second = screen.until("held");
    assert!(
        second.contains(&format!("{}  root", named.id())) && second.contains("a\\x1b[31m\\nb"),
        "{second:?}"
    );
    let plain = second.replace("\x1b[32mfree\x1b[0m", "").replace('\n', "");
    assert!(!plain.contains(char::is_control), "{second:?}");
    named.kill().unwrap();
    named.wait().unwrap();
    screen.until("\x1b[33mstale\x1b[0m");
    screen.terminal.write_all(b"\x03").unwrap();
    let mut end = None;
    wait_until("it ends by the signal", || {
        end = screen.child.try_wait().unwrap();
        end.is_some()
    });
    assert_eq!(end.unwrap().signal(), Some(Signal::SIGINT as i32));
}

#[test]
fn a_terminal_of_one_column_is_drawn_on() {
    let host = Sandbox::with_gpus(2);
    let mut screen = Screen::start(&host, 1);
    assert_eq!(screen.until("I\n0\n1\n"), "I\n0\n1\n");
}

/// `status --watch`, read as it comes.
struct Watching {
    child: Child,
    /// It ends with the program.
    lines: Receiver<String>,
}

impl Watching {
    fn start(host: &Sandbox) -> Watching {
        let mut child = host.program("status --watch").stdout(Stdio::piped()).spawn().unwrap();
        let (stdout, (sender, lines)) = (child.stdout.take().unwrap(), channel());
        thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| sender.send(line.unwrap())));
        Watching { child, lines }
    }

    /// The states in the next table that is not `before`.
    #[track_caller]
    fn next(&self, before: &[String]) -> Vec<String> {
        loop {
            let line = || self.lines.recv_timeout(PATIENCE).unwrap(); // it showed something else
            let table = iter::repeat_with(line).take_while(|line| !line.is_empty());
            let state = |line: String| line.split_ascii_whitespace().nth(5).map(str::to_owned);
            let states: Vec<String> = table.skip(1).filter_map(state).collect();
            if states != before {
                return states;
            }
        }
    }

    /// Until it was not woken for a while.
    fn sleeps_for_good(&self) {
        let switches = || -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
            let line = stat.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
            line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let mut before = switches();
        wait_until("it sleeps for good", || {
            // Longer than it sleeps where it looks of itself.
            thread::sleep(Duration::from_millis(1500));
            std::mem::replace(&mut before, switches()) == before
        });
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_change_is_shown_when_it_happens() {
    let host = Sandbox::with_gpus(2);
    let watching = Watching::start(&host);
    let nobody = watching.next(&[]);
    assert_eq!(nobody, ["free", "free"]);
    let owner = Process::start();
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let held = watching.next(&nobody);
    assert_eq!(held, ["held", "free"]);
    owner.kill();
    let stale = watching.next(&held);
    assert_eq!(stale, ["stale", "free"], "the file was not touched");
    host.command("reclaim").assert().code(0);
    assert_eq!(watching.next(&stale), ["free", "free"]);
}

/// As in `status --watch | head -1`, when nothing changes any more.
#[test]
fn it_ends_with_whoever_reads_it() {
    let host = Sandbox::with_gpus(1);
    let mut command = host.program("status --watch");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("INDEX"));
    drop(lines);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

/// In its own namespace the owner has pid 1, which is another process here.
#[test]
fn the_end_of_an_owner_in_a_container_is_shown() {
    let test = "the_end_of_an_owner_in_a_container_is_shown";
    if !is_root(test) || !is_on_the_host(test) {
        return;
    }
    let host = Sandbox::with_gpus(2);
    let program = host.program("allocate 1");
    let mut command = Command::new("unshare");
    command.args([
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "sh",
        "-ec",
        "\"$0\" \"$@\"; exec sleep 1000",
    ]);
    command.arg(program.get_program()).args(program.get_args()).current_dir(host.path());
    let mut container = Running::start(command);
    assert_eq!(container.line(), "0");
    let watching = Watching::start(&host);
    assert_eq!(watching.next(&[]), ["held", "free"]);
    container.kill();
    assert_eq!(watching.next(&["held", "free"].map(str::to_owned)), ["stale", "free"]);
}

#[test]
fn watching_costs_nothing_while_nothing_happens() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(2);
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let watching = Watching::start(&host);
    watching.next(&[]);
    watching.sleeps_for_good();
}

/// That it has ended is heard once, though its parent does not take note of it.
#[test]
fn a_zombie_is_no_event() {
    let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
    let host = Sandbox::with_gpus(2);
    host.answers(&format!("allocate 1 --owner {}", owner.id()), "0\n");
    let watching = Watching::start(&host);
    let held = watching.next(&[]);
    owner.kill().unwrap();
    assert_eq!(watching.next(&held), ["stale", "free"]);
    watching.sleeps_for_good();
    owner.wait().unwrap();
}
