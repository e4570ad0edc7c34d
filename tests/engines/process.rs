//! Processes that a test starts: run to their end, or kept until dropped; and waiting for what they do.

use std::io::ErrorKind;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Far above what anything here takes on two loaded cores: it ends a hang, it measures nothing.
const BOUND: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);

/// What `command` printed, once it has succeeded. If it is not there, `package` names what to install.
#[track_caller]
pub(crate) fn run(command: &mut Command, package: &str) -> String {
    let output = command.output().unwrap_or_else(|error| not_started(command, package, &error));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let needs = format!("it needs the Debian package {package}, or its like");
    assert!(output.status.success(), "{command:?}: {}; {needs}\n{stdout}{stderr}", output.status);
    stdout
}

/// A process that ends with the value that holds it, also when its test panics.
pub(crate) struct Running(Child);

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command, package: &str) -> Running {
        Running(command.spawn().unwrap_or_else(|error| not_started(command, package, &error)))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended by itself, which none of those here should.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL also wakes what is stopped, and a child that is not waited for keeps its pid.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `poll` gives as soon as it gives anything.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(since.elapsed() < BOUND, "waited {BOUND:?} in vain for {what}");
        sleep(POLL);
    }
}

#[track_caller]
fn not_started(command: &Command, package: &str, error: &std::io::Error) -> ! {
    let program = command.get_program().display();
    match error.kind() {
        ErrorKind::NotFound => panic!("there is no {program}: install the Debian package {package}"),
        _ => panic!("cannot start {program}: {error}"),
    }
}
