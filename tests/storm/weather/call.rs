//! One call on behalf of an owner, under way.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::host::{Host, NAMESPACE, Unit};
use super::namespace;
use super::owner::{Name, Owner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// `AMOUNT --enable-coordination-mode`, which takes over.
    Discover(usize),
    /// `allocate AMOUNT`.
    Allocate(usize),
    /// `allocate AMOUNT --check-dead`.
    TakeOver(usize),
    GiveBack,
    /// Of nobody's, as what follows.
    Reclaim,
    Drain(u32),
    Undrain(u32),
    /// Flink's own.
    Script(usize),
}

impl What {
    pub(crate) fn amount(self) -> usize {
        match self {
            What::Discover(amount)
            | What::Allocate(amount)
            | What::TakeOver(amount)
            | What::Script(amount) => amount,
            What::GiveBack | What::Reclaim | What::Drain(_) | What::Undrain(_) => 0,
        }
    }

    /// Whether it frees what the dead hold.
    pub(crate) fn clears(self) -> bool {
        matches!(self, What::Discover(_) | What::TakeOver(_) | What::Reclaim)
    }

    /// Whether what the dead hold stays held by them.
    pub(crate) fn leaves_the_dead(self) -> bool {
        matches!(self, What::Allocate(_) | What::Drain(_) | What::Undrain(_))
    }

    pub(crate) fn words(self) -> String {
        match self {
            What::Discover(amount) | What::Script(amount) => format!("{amount} --enable-coordination-mode"),
            What::Allocate(amount) => format!("allocate {amount}"),
            What::TakeOver(amount) => format!("allocate {amount} --check-dead"),
            What::GiveBack => "deallocateAll".to_owned(),
            What::Reclaim => "reclaim".to_owned(),
            What::Drain(device) => format!("drain {device} --reason storm"),
            What::Undrain(device) => format!("undrain {device}"),
        }
    }
}

pub(crate) struct Call {
    pub(crate) what: What,
    pub(crate) owner: Name,
    /// `None`: the owner's shell has it.
    child: Option<Child>,
    /// Its answer cannot be written.
    pub(crate) is_deaf: bool,
    is_stopped: bool,
    pub(crate) known: Known,
}

/// What was so when a call began, and is so still.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Who was dead.
    pub(crate) dead: BTreeSet<Name>,
    /// What the dead held, and nobody has been at work since who might have freed it.
    pub(crate) left: BTreeSet<Unit>,
    /// What an earlier boot left.
    pub(crate) earlier: BTreeSet<Unit>,
    /// Pids in lines as the script writes them.
    pub(crate) unsettled: BTreeSet<u32>,
    /// Devices.
    pub(crate) drained: BTreeSet<u32>,
    /// The most units that the living can have held at any moment of it; and those of them that are limited.
    pub(crate) most: usize,
    pub(crate) most_limited: usize,
}

/// How it ended.
pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Call {
    pub(crate) fn start(host: &Host, what: What, owner: &Owner, is_deaf: bool) -> Call {
        let mut command = host.program(&what.words());
        if what.amount() > 0 || what == What::GiveBack {
            command.args(["--owner", &owner.name.0.to_string()]);
        }
        if what.amount() > 0 && owner.is_limited {
            command.args(["--namespace", NAMESPACE]);
        }
        let stdout = match is_deaf {
            true => File::options().write(true).open("/dev/full").unwrap().into(),
            false => Stdio::piped(),
        };
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).spawn();
        let child = child.unwrap();
        namespace::use_pids_again(child.id());
        Call { child: Some(child), is_deaf, ..Call::ordered(what, owner.name) }
    }

    /// The script, by the shell that owns what it is given.
    pub(crate) fn ordered(what: What, owner: Name) -> Call {
        Call { what, owner, child: None, is_deaf: false, is_stopped: false, known: Known::default() }
    }

    /// Wherever it is. It has no part in what happens until it is let go on.
    pub(crate) fn stop(&mut self) {
        let Some(pid) = self.child.as_ref().map(Child::id) else { return };
        self.is_stopped = true;
        self.signal(Signal::SIGSTOP);
        while !namespace::start_and_state(pid).is_none_or(|(_, state)| matches!(state, b'T' | b'Z')) {
            thread::yield_now();
        }
    }

    pub(crate) fn go_on(&mut self) {
        if std::mem::take(&mut self.is_stopped) {
            self.signal(Signal::SIGCONT);
        }
    }

    fn signal(&self, signal: Signal) {
        let Some(child) = self.child.as_ref() else { return };
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    }

    /// Whether it has ended, or may be waited for without a look at the others.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// Its end, if it is a process of ours.
    pub(crate) fn end(&mut self) -> Option<Outcome> {
        let child = self.child.as_mut()?;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut stdout).unwrap());
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = child.wait().unwrap();
        let status = status.code().unwrap_or_else(|| panic!("{:?} was ended: {status}: {stderr}", self.what));
        Some(Outcome { status, stdout, stderr })
    }

    /// Whether the signal has ended it, and it did not end before, or heed it not.
    pub(crate) fn end_by(&mut self, signal: Signal) -> bool {
        self.signal(signal);
        self.go_on();
        let Some(child) = self.child.as_mut() else { return false };
        child.wait().unwrap().signal() == Some(signal as i32)
    }

    pub(crate) fn is_the_scripts(&self) -> bool {
        self.child.is_none()
    }
}
