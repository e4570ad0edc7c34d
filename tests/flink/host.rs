//! One host without Flink: a fake nvidia-smi, a coordination file, and callers that each live on after
//! their answer, as a TaskManager does.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::GPU_COORD;
use crate::engines::directory::Directory;
use crate::engines::process::{Running, run, until};
use crate::flink::FLINK_2_3;
use crate::smi;

#[derive(Clone, Copy)]
pub(crate) enum Program {
    Script,
    GpuCoord,
}

/// The indexes that a program printed, or the status of its refusal.
pub(crate) type Answer = Result<BTreeSet<u32>, i32>;

pub(crate) struct Caller {
    pub(crate) answer: Answer,
    process: Running,
}

impl Caller {
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

pub(crate) struct Host {
    directory: Directory,
    search_path: String,
    stock_script: PathBuf,
    asked: Cell<usize>,
}

/// Without them the script goes on, with no lock and every owner dead: not the faults that are meant here.
static TOOLS_OF_THE_SCRIPT: LazyLock<()> = LazyLock::new(|| {
    run(Command::new("ps").arg("--version"), "procps");
    run(Command::new("flock").arg("--version"), "util-linux");
});

impl Host {
    pub(crate) fn new(gpus: usize) -> Host {
        LazyLock::force(&TOOLS_OF_THE_SCRIPT);
        let directory = Directory::new();
        let search_path = smi::install(&directory.path("nvidia-smi"), gpus);
        Host { directory, search_path, stock_script: FLINK_2_3.stock_script(), asked: Cell::new(0) }
    }

    pub(crate) fn coordination_file(&self) -> PathBuf {
        self.directory.path("coordination")
    }

    /// Records, as the script does, an owner for each GPU in turn.
    pub(crate) fn record(&self, owners: impl IntoIterator<Item = u32>) {
        let lines = owners.into_iter().enumerate().map(|(index, pid)| format!("{index} {pid}\n"));
        fs::write(self.coordination_file(), lines.collect::<String>()).unwrap();
    }

    /// What the file holds after every restart: each of `gpus` recorded for a process that has ended.
    pub(crate) fn record_dead_owners(&self, gpus: usize) {
        self.record((0..gpus).map(|_| dead_pid()));
    }

    pub(crate) fn ask(&self, program: Program, amount: usize) -> Caller {
        self.start(program, amount).answered()
    }

    /// Callers of all `programs` at once.
    pub(crate) fn ask_at_once(&self, programs: &[Program], amount: usize) -> Vec<Caller> {
        let started: Vec<_> = programs.iter().map(|program| self.start(*program, amount)).collect();
        started.into_iter().map(Started::answered).collect()
    }

    /// Callers of all `programs`, whose starts spread over half a second: no JVM takes as long to start as
    /// the next. `round` varies how, and is the same for whatever is to be compared.
    pub(crate) fn ask_spread(&self, programs: &[Program], amount: usize, round: u64) -> Vec<Caller> {
        let mut starts: Vec<_> = programs.iter().enumerate().map(|(n, of)| (moment(n, round), of)).collect();
        starts.sort_by_key(|(moment, _)| *moment);
        let begin = Instant::now();
        let started: Vec<_> = starts
            .into_iter()
            .map(|(moment, program)| {
                sleep(moment.saturating_sub(begin.elapsed()));
                self.start(*program, amount)
            })
            .collect();
        started.into_iter().map(Started::answered).collect()
    }

    /// A shell that runs `program` and lives until its input ends.
    fn start(&self, program: Program, amount: usize) -> Started {
        let number = self.asked.replace(self.asked.get() + 1);
        let output = self.directory.path(&format!("caller-{number}"));
        let (path, words) = match program {
            Program::Script => (self.stock_script.as_path(), ""),
            // Its parent too, unless a JVM is an ancestor, as where a CI agent is one: then it is that JVM.
            Program::GpuCoord => (Path::new(GPU_COORD), "--source nvidia-smi --owner $$"),
        };
        let lived = format!(r#""$@" {words} </dev/null; echo "status $?"; read -r end"#);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &lived, "caller"])
            .arg(path)
            .arg(amount.to_string())
            .arg("--enable-coordination-mode");
        shell.arg("--coordination-file").arg(self.coordination_file());
        shell.env_clear().env("PATH", &self.search_path).stdin(Stdio::piped());
        shell.stdout(File::create_new(&output).unwrap());
        shell.stderr(File::create_new(output.with_extension("errors")).unwrap());
        Started { process: Running::start(&mut shell, "dash"), output }
    }
}

struct Started {
    process: Running,
    output: PathBuf,
}

impl Started {
    fn answered(mut self) -> Caller {
        let (printed, status) = until("a caller's answer", || {
            assert!(!self.process.has_ended(), "a caller has ended");
            let text = fs::read_to_string(&self.output).unwrap();
            let (printed, status) = text.rsplit_once("status ")?;
            Some((printed.to_owned(), status.strip_suffix('\n')?.parse().ok()?))
        });
        let answer = match status {
            0 => Ok(printed.trim_end().split(',').map(|index| index.parse().expect(&printed)).collect()),
            status => Err(status),
        };
        Caller { answer, process: self.process }
    }
}

/// How many GPUs were given away that another of `callers`, all of which live, has been given.
pub(crate) fn doubles(callers: &[Caller]) -> usize {
    let given = || callers.iter().filter_map(|caller| caller.answer.as_ref().ok()).flatten();
    given().count() - given().collect::<BTreeSet<_>>().len()
}

/// Below half a second, without a pattern, and the same in every run.
fn moment(caller: usize, round: u64) -> Duration {
    let mut hasher = DefaultHasher::new();
    (caller, round).hash(&mut hasher);
    Duration::from_millis(hasher.finish() % 500)
}

/// The pid of a process that has ended and was waited for.
pub(crate) fn dead_pid() -> u32 {
    Running::start(&mut Command::new("true"), "coreutils").pid()
}
