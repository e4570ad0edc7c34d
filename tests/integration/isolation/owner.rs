//! A process that can own devices, and does as it is told: a shell that reads its orders from a pipe.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// `reach` prints a sign for each node of `$NODES`, without a process of its own: see [`Owner::reach`].
const PRELUDE: &str = r#"
export LC_ALL=C
reach() { for node in $NODES; do { true 9<>"$node" && echo opened; } 2>&1; done; }
export -f reach
"#;
const END: &str = "-- done --";

pub(crate) struct Owner {
    child: Child,
    orders: ChildStdin,
    output: BufReader<ChildStdout>,
    directory: PathBuf,
    /// The pid of the shell, if it is not that of what was started.
    pid: u32,
}

impl Owner {
    /// `command` must come to be `bash`, with `$NODES` in its environment.
    pub(crate) fn start(mut command: Command, directory: &Path) -> Owner {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut owner = Owner { pid: child.id(), child, orders, output, directory: directory.to_owned() };
        owner.tell(PRELUDE);
        owner
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Runs `script` in the shell itself; what it prints.
    #[track_caller]
    pub(crate) fn tell(&mut self, script: &str) -> String {
        self.order(&format!("{script}\necho '{END}'"));
        let mut text = String::new();
        loop {
            let line = self.line();
            if line == END {
                return text;
            }
            text = text + &line + "\n";
        }
    }

    /// Without waiting for the end of it.
    pub(crate) fn order(&mut self, script: &str) {
        writeln!(self.orders, "{script}").unwrap();
    }

    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the owner has ended");
        line.trim_end().to_owned()
    }

    /// For each node in turn: `+` if it may be opened, `-` if it is denied.
    #[track_caller]
    pub(crate) fn reach(&mut self) -> String {
        signs(&self.tell("reach"))
    }

    /// The same, of a child that is born now.
    #[track_caller]
    pub(crate) fn reach_of_a_child(&mut self) -> String {
        signs(&self.tell("(reach)"))
    }

    /// Runs `gpu-coord` as its child: status, stdout and stderr.
    #[track_caller]
    pub(crate) fn runs(&mut self, line: &str) -> (i32, String, String) {
        let status = self.tell(&format!("gpu-coord {line} >answer 2>errors; echo $?"));
        let read = |name: &str| fs::read_to_string(self.directory.join(name)).unwrap();
        (status.trim().parse().unwrap(), read("answer"), read("errors"))
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What `reach` printed, in signs.
#[track_caller]
pub(crate) fn signs(text: &str) -> String {
    let sign = |line: &str| match line {
        "opened" => '+',
        _ if line.ends_with(": No such device or address") => '+',
        _ if line.ends_with(": Operation not permitted") => '-',
        _ => panic!("neither opened nor denied: {text}"),
    };
    text.lines().map(sign).collect()
}
