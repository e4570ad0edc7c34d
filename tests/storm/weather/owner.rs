//! Processes that can own units.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::Script;
use super::host::Unit;
use super::namespace::{start_and_state, use_pids_again};

/// A process, by what tells it from a later one of its pid.
pub(crate) type Name = (u32, u64);

pub(crate) struct Owner {
    child: Child,
    pub(crate) name: Name,
    /// What it was told, and has not given back.
    pub(crate) told: BTreeSet<Unit>,
    /// Whether a call on its behalf is under way: what it holds then is open.
    pub(crate) is_asking: bool,
    /// It is a zombie then.
    pub(crate) is_dead: bool,
    /// Whether a quota is about it.
    pub(crate) is_limited: bool,
    /// Of a shell that runs the script.
    orders: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Owner {
    pub(crate) fn start(script: Option<&Script>) -> Owner {
        match script {
            None => Owner::of(Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null())),
            Some(script) => {
                // The script's owner is its parent.
                let orders = r#"while read -r words; do "$0" $words 2>&1 </dev/null; echo "status $?"; done"#;
                let mut shell = Command::new("sh");
                shell.args(["-c", orders]).arg(&script.path).env_clear().env("PATH", &script.search_path);
                let mut owner = Owner::of(shell.stdin(Stdio::piped()).stdout(Stdio::piped()));
                let output = BufReader::new(owner.child.stdout.take().unwrap());
                owner.orders = Some((owner.child.stdin.take().unwrap(), output));
                owner
            }
        }
    }

    fn of(command: &mut Command) -> Owner {
        let child = command.spawn().unwrap();
        use_pids_again(child.id());
        let (start, _) = start_and_state(child.id()).unwrap();
        let name = (child.id(), start);
        let told = BTreeSet::new();
        Owner { child, name, told, is_asking: false, is_dead: false, is_limited: false, orders: None }
    }

    /// It is a zombie afterwards: nobody has asked for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.is_dead = true;
        while start_and_state(self.name.0).is_some_and(|(_, state)| state != b'Z') {
            std::thread::yield_now();
        }
    }

    /// Its pid is free afterwards.
    pub(crate) fn bury(mut self) -> Name {
        self.end();
        self.name
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Has the shell call the script.
    pub(crate) fn order(&mut self, words: &str) {
        let (orders, _) = self.orders.as_mut().unwrap();
        writeln!(orders, "{words}").unwrap();
    }

    /// What the script printed, and its status.
    pub(crate) fn answer(&mut self) -> (i32, String) {
        let (_, output) = self.orders.as_mut().unwrap();
        let mut text = String::new();
        loop {
            let before = text.len();
            assert_ne!(output.read_line(&mut text).unwrap(), 0, "the owner has ended: {text}");
            if let Some(status) = text[before..].strip_prefix("status ") {
                let status = status.trim_end().parse().unwrap();
                text.truncate(before);
                return (status, text);
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}
