//! `status` on a real terminal, and `status --watch`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};

use crate::sandbox::{Process, Sandbox};

/// What the program shows on a terminal of that width.
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

/// `status --watch`, read as it comes.
struct Watching {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(host: &Sandbox) -> Watching {
        let mut child = host.program("status --watch").stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Watching { child, lines }
    }

    /// The states in the next table that is not `before`.
    fn next(&mut self, before: &[String]) -> Vec<String> {
        loop {
            let table = self.lines.by_ref().map(Result::unwrap).take_while(|line| !line.is_empty());
            let state = |line: String| line.split_ascii_whitespace().nth(5).map(str::to_owned);
            let states: Vec<String> = table.skip(1).filter_map(state).collect();
            if states != before {
                return states;
            }
        }
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
    let mut watching = Watching::start(&host);
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

#[test]
fn watching_costs_nothing_while_nothing_happens() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(2);
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let mut watching = Watching::start(&host);
    watching.next(&[]);
    let stat = || std::fs::read_to_string(format!("/proc/{}/status", watching.child.id())).unwrap();
    let switches = |stat: String| -> u64 {
        let line = stat.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap().to_owned();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // Until it sleeps for good: twice the same.
    let mut before = switches(stat());
    loop {
        thread::sleep(Duration::from_millis(300));
        let now = switches(stat());
        if now == before {
            break;
        }
        before = now;
    }
}
