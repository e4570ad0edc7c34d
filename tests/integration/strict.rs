//! `--strict`: every warning of the program becomes an error, and nothing is recorded.
//!
//! Warnings that are easily provoked are tested here. For the others, the test that provokes them calls
//! [`is_refused_if_strict`]. [`SITES`] counts both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fake_nvml::Host;
use crate::reclaim::reclaim;
use crate::running::locked;
use crate::sandbox::{PROGRAM, Process, Sandbox};
use crate::tree::Tree;

/// Where the program warns, and how often in each file. Whoever adds one adds a row below, or a call of
/// [`is_refused_if_strict`] to the test that provokes it.
const SITES: [(&str, usize); 19] = [
    ("cli/environment.rs", 1),
    ("cli/parse.rs", 8),
    ("commands/choice.rs", 4),
    ("commands/drain.rs", 1),
    ("commands/eligible.rs", 1),
    ("commands/groups.rs", 2),
    ("commands/history.rs", 1),
    ("commands/kept.rs", 1),
    ("commands/passing.rs", 1),
    ("commands/reclaim.rs", 2),
    ("commands/release.rs", 2),
    ("commands/remains.rs", 2),
    ("commands/request.rs", 2),
    ("commands/status.rs", 5),
    ("coordination/place.rs", 1),
    ("host/wrapper.rs", 2),
    ("inventory/auto.rs", 1),
    ("inventory/mod.rs", 1),
    ("inventory/probe.rs", 2),
];

/// The lines of a record that are no free space.
fn taken(record: &Path) -> Vec<String> {
    let text = fs::read(record).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

fn run(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A command that would warn so is refused with `--strict`: there is no answer, and the record is as it was.
/// `warning`: as it is on stderr without.
#[track_caller]
pub(crate) fn is_refused_if_strict(mut command: Command, record: &Path, warning: &str) {
    let before = taken(record);
    command.env("GPU_COORD_STRICT", "1");
    let (status, stdout, refused) = run(command);
    let warning = warning.trim_start_matches("gpu-coord: warning: ").trim_end();
    let error = format!("gpu-coord: {warning} (an error by --strict)\n");
    assert_eq!((status, stdout, refused), (Some(4), String::new(), error));
    assert_eq!(taken(record), before);
}

/// The same, of a command that then succeeds without it; what it says on stderr.
#[track_caller]
fn is_an_error_if_strict(command: impl Fn() -> Command, record: &Path) -> String {
    let before = taken(record);
    let mut strict = command();
    strict.env("GPU_COORD_STRICT", "1");
    let (status, stdout, refused) = run(strict);
    assert_eq!((status, stdout.as_str()), (Some(4), ""), "{refused}");
    assert_eq!(taken(record), before, "{refused}");
    let (status, _, warned) = run(command());
    assert_eq!(status, Some(0), "{warned}");
    let warning = warned.lines().next().unwrap().strip_prefix("gpu-coord: warning: ").unwrap();
    assert_eq!(refused, format!("gpu-coord: {warning} (an error by --strict)\n"));
    warned
}

/// A host, and what is asked of it.
struct Case {
    host: Sandbox,
    owner: Process,
    variable: Option<(&'static str, &'static str)>,
}

impl Case {
    fn new(text: &str) -> Case {
        let owner = Process::start();
        let host = Sandbox::with_gpus(3);
        let devices = r#"{"devices": [{"id": "a", "unhealthy": "its fan stands"}, {"id": "b"}]}"#;
        fs::write(host.path().join("devices.json"), devices).unwrap();
        if !text.is_empty() {
            fs::write(host.file(), text).unwrap();
        }
        Case { host, owner, variable: None }
    }

    fn command(&self, line: &str) -> Command {
        let line = line.replace("OWNER", &format!("--owner {}", self.owner.pid()));
        let (line, words) = line.split_once(" -- ").unwrap_or((&line, ""));
        let has_record = !["check", "devices"].iter().any(|command| line.starts_with(command));
        let mut command = match line {
            "reclaim" => reclaim(&self.host, ""),
            _ if has_record => self.host.program(line),
            _ => self.without_record(line),
        };
        command.args((!words.is_empty()).then_some("--")).args(words.split_ascii_whitespace());
        command.envs(self.variable);
        command
    }

    fn without_record(&self, line: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("GPU_COORD_SOURCE", "simulated:3").current_dir(self.host.path());
        command.args(line.split_ascii_whitespace());
        command
    }
}

#[test]
#[rustfmt::skip] // a table
fn a_warning_is_an_error_and_nothing_is_done() {
    let unknown = Some(("GPU_COORD_COLOUR", "1"));
    let withheld = "2 4711 x\n";
    for (line, record, variable, says) in [
        ("1",                                                 "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("allocate 1 OWNER",                                  "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("0",                                                 "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("deallocateAll OWNER",                               "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("exec 1 -- echo done",                               "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("exec 0 -- echo done",                               "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("exec 1 --wait=1 -- echo done",                      "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("reclaim",                                           "0 1\n",  unknown, "GPU_COORD_COLOUR is not a variable"),
        ("drain 0 --reason old",                              "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("undrain 0",                                         "! 0\tv=1;uuid=GPU-00000000-0000-4000-8000-000000000000;reason=old\n",
                                                                        unknown, "GPU_COORD_COLOUR is not a variable"),
        ("devices",                                           "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("check devices.yaml",                                "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("status --json",                                     "",       unknown, "GPU_COORD_COLOUR is not a variable"),
        ("allocate 1 OWNER",                                  withheld, None,    "coordination:1: `2 4711 x` has"),
        ("exec 1 -- echo done",                               withheld, None,    "coordination:1: `2 4711 x` has"),
        ("status",                                            withheld, None,    "coordination:1: `2 4711 x` has"),
        ("allocate 2 OWNER --source file:devices.json --include-unhealthy", "", None, "device 0 is given although it is sick"),
        ("2 --source file:devices.json --include-unhealthy",  "",       None,    "device 0 is given although it is sick"),
        ("undrain 0",                                         "# ",     None,    "none of these units is drained"),
        ("release 0 --force",                                 "# ",     None,    "nobody holds these units"),
        ("release 0 --force",                                 "! 0\tv=1;uuid=GPU-00000000-0000-4000-8000-000000000000;reason=old\n",
                                                                        None,    "nobody holds these units, and some are drained"),
        ("status --source file:nowhere.json",                 "",       None,    "cannot open nowhere.json"),
        ("allocate 1 OWNER --log nowhere/log",                "",       None,    "the history lacks this"),
        ("1 --enable-coordination OWNER --log nowhere/log",   "",       None,    "the history lacks this"),
        ("exec 1 --log nowhere/log -- echo done",             "",       None,    "the history lacks this"),
    ] {
        let mut case = Case::new(record);
        case.variable = variable;
        fs::write(case.host.path().join("devices.yaml"), "").unwrap();
        let warned = is_an_error_if_strict(|| case.command(line), &case.host.file());
        assert!(warned.contains(says), "{line}: {warned}");
    }
}

#[test]
fn what_is_given_back_is_given_back_also_where_the_history_lacks_it() {
    let case = Case::new("");
    case.host.answers(&format!("allocate 1 --owner {}", case.owner.pid()), "0\n");
    let (status, stdout, stderr) = run(case.command("deallocateAll OWNER --log nowhere/log --strict"));
    assert_eq!((status, stdout.as_str()), (Some(4), ""));
    assert!(stderr.ends_with(" (an error by --strict)\n") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(case.host.holders(), []);
}

#[test]
fn a_look_without_the_lock_is_no_answer() {
    let case = Case::new("# \n");
    let _lock = locked(&case.host.file());
    is_an_error_if_strict(|| case.command("status --deadline 0.1"), &case.host.file());
}

#[test]
fn nobody_watches_what_is_doubtful() {
    let case = Case::new("2 4711 x\n");
    let (status, stdout, stderr) = run(case.command("status --watch --strict"));
    assert_eq!((status, stdout.as_str()), (Some(4), ""));
    assert!(stderr.contains("`2 4711 x` has") && stderr.lines().count() == 1, "{stderr}");
}

/// A source that fails, and what another says of a device.
#[test]
fn what_sources_warn_of_is_an_error() {
    let fallen =
        Tree::new().tool("nvidia-smi", "exit 18").card("0000:01:00.0", "Model: A\nDevice Minor: 0\n");
    let fallen = fallen.file("root/proc/devices", "Character devices:\n195 nvidia\n\nBlock devices:\n");
    let command = || fallen.program(&["devices", "--source", "auto"]);
    let warned = is_an_error_if_strict(command, &fallen.path("coordination"));
    assert!(warned.contains("devices are read from procfs, since nvidia-smi failed"), "{warned}");
    let worn = Host::new().with("REMAP_PENDING", "0:1");
    let warned = is_an_error_if_strict(|| worn.command("1 --source nvml"), &worn.path("coordination"));
    assert!(warned.contains("replaces a bad row of its memory"), "{warned}");
}

#[test]
fn every_place_that_warns_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut open = vec![root.clone()];
    let mut found: BTreeMap<PathBuf, usize> = BTreeMap::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let count = text.matches("notes.warn(").count() + text.matches("notes.warnings.extend(").count();
        if count > 0 {
            found.insert(path.strip_prefix(&root).unwrap().to_owned(), count);
        }
    }
    let known: BTreeMap<PathBuf, usize> = SITES.map(|(path, count)| (PathBuf::from(path), count)).into();
    assert_eq!(found, known);
}
