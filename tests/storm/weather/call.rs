//! One call on behalf of an owner, under way.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::owner::Name;
use super::{GPU_COORD, namespace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// `AMOUNT --enable-coordination-mode`, which takes over.
    Discover(usize),
    /// `allocate AMOUNT`.
    Allocate(usize),
    /// `allocate AMOUNT --check-dead`.
    TakeOver(usize),
    GiveBack,
    /// Of nobody's.
    Reclaim,
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
            What::GiveBack | What::Reclaim => 0,
        }
    }

    /// Whether it frees what the dead hold.
    pub(crate) fn clears(self) -> bool {
        matches!(self, What::Discover(_) | What::TakeOver(_) | What::Reclaim)
    }

    pub(crate) fn words(self) -> String {
        match self {
            What::Discover(amount) | What::Script(amount) => format!("{amount} --enable-coordination-mode"),
            What::Allocate(amount) => format!("allocate {amount}"),
            What::TakeOver(amount) => format!("allocate {amount} --check-dead"),
            What::GiveBack => "deallocateAll".to_owned(),
            What::Reclaim => "reclaim".to_owned(),
        }
    }
}

pub(crate) struct Call {
    pub(crate) what: What,
    pub(crate) owner: Name,
    /// `None`: the owner's shell has it.
    child: Option<Child>,
    /// Who was dead when it began.
    pub(crate) dead: BTreeSet<Name>,
    /// The most units that the living can have held at any moment of it.
    pub(crate) most: usize,
}

/// How it ended.
pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Call {
    pub(crate) fn start(what: What, owner: Name, file: &Path, units: u32) -> Call {
        let mut command = Command::new(GPU_COORD);
        command.env_clear().args(what.words().split(' ')).arg("--coordination-file").arg(file);
        // Nothing is to depend on how busy the machine is.
        command.args(["--deadline", "100", "--log", "none"]);
        if what != What::GiveBack {
            command.args(["--source", &format!("simulated:{units}")]);
        }
        if what != What::Reclaim {
            command.args(["--owner", &owner.0.to_string()]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.unwrap();
        namespace::use_pids_again(child.id());
        Call { what, owner, child: Some(child), dead: BTreeSet::new(), most: 0 }
    }

    /// The script, by the shell that owns what it is given.
    pub(crate) fn ordered(what: What, owner: Name) -> Call {
        Call { what, owner, child: None, dead: BTreeSet::new(), most: 0 }
    }

    /// Its end, if it is a process of ours.
    pub(crate) fn end(&mut self) -> Option<Outcome> {
        let child = self.child.as_mut()?;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = child.wait().unwrap();
        let status = status.code().unwrap_or_else(|| panic!("{:?} was ended: {status}: {stderr}", self.what));
        Some(Outcome { status, stdout, stderr })
    }

    /// Whether it was killed, and did not end before.
    pub(crate) fn kill(&mut self) -> bool {
        let Some(child) = self.child.as_mut() else { return false };
        child.kill().unwrap();
        child.wait().unwrap().code().is_none()
    }

    pub(crate) fn is_the_scripts(&self) -> bool {
        self.child.is_none()
    }
}
