//! Arguments, environment variables and standard streams that the program is started with.
//!
//! All through `simulated:8`, so that nothing here depends on the machine's devices. Status and both streams
//! are compared whole.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use tempfile::TempDir;

use crate::sandbox::skip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-coord");
const SIMULATED: (&str, &str) = ("GPU_COORD_SOURCE", "simulated:8");

/// The program with nothing of this test's environment.
fn program(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().envs(variables.iter().copied()).args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to the end: its status, stdout and stderr.
#[track_caller]
fn ended(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn refuses(arguments: &[impl AsRef<OsStr>], variables: &[(&str, &str)], message: &str) {
    let command = program(arguments, variables);
    let case = format!("{command:?}");
    assert_eq!(ended(command), (2, String::new(), format!("gpu-coord: {message}\n")), "{case}");
}

#[track_caller]
fn answers(arguments: &[&str], variables: &[(&str, &str)], stdout: &str, stderr: &str) {
    let command = program(arguments, variables);
    let case = format!("{command:?}");
    assert_eq!(ended(command), (0, stdout.to_owned(), stderr.to_owned()), "{case}");
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
#[rustfmt::skip] // a table
fn amount_is_the_first_word() {
    let whole = "it takes a whole number of units";
    for (amount, message) in [
        ("",     format!("AMOUNT cannot be ``: {whole}")),
        ("-1",   format!("AMOUNT cannot be `-1`: {whole}")),
        ("1.5",  format!("AMOUNT cannot be `1.5`: {whole}")),
        ("+1",   format!("AMOUNT cannot be `+1`: {whole}")),
        (" 1",   format!("AMOUNT cannot be ` 1`: {whole}")),
        ("1\n",  format!("AMOUNT cannot be `1\\n`: {whole}")),
        ("0x1",  format!("AMOUNT cannot be `0x1`: {whole}")),
        ("१",    format!("AMOUNT cannot be `१`: {whole}")),
    ] {
        refuses(&[amount], &[], &message);
        refuses(&["allocate", amount], &[], &message);
        refuses(&[amount, "--no-such-option"], &[], &message);
    }
    refuses(&["allocate", "abc"], &[], &format!("AMOUNT cannot be `abc`: {whole}"));
    for word in ["abc", "null", "discover", "run"] {
        let hint = "for the commands see `gpu-coord --help`";
        refuses(&[word, "2"], &[], &format!("AMOUNT cannot be `{word}`: {whole}; {hint}"));
    }
}

#[test]
fn an_amount_past_the_host_is_no_error_of_the_words() {
    for amount in ["9", "99999999999999999999", &"9".repeat(1000)] {
        let (status, stdout, stderr) = ended(program(&[amount], &[SIMULATED]));
        assert_eq!((status, stdout.as_str()), (1, ""), "{stderr}");
        assert!(stderr.contains("waiting cannot help"), "{stderr}");
    }
}

#[test]
#[rustfmt::skip] // a table
fn a_first_word_that_is_neither_is_told_the_nearest_command() {
    for (word, near) in [
        ("statsu",        "status"),
        ("Status",        "status"),
        ("device",        "devices"),
        ("alocate",       "allocate"),
        ("deallocate",    "deallocateAll"),
        ("deallocateall", "deallocateAll"),
        ("hlep",          "help"),
    ] {
        refuses(&[word], &[], &format!("`{word}` is neither an amount nor a command; did you mean `{near}`?"));
    }
}

#[test]
#[rustfmt::skip] // a table
fn what_clap_refuses_is_one_line_of_ours() {
    for (line, message) in [
        ("", "AMOUNT is missing: `gpu-coord AMOUNT [OPTIONS]`, or a command; see `gpu-coord --help`"),
        ("allocate", "AMOUNT is missing; see `gpu-coord allocate --help`"),
        ("--print uuid 2", "`--print` comes too early: AMOUNT or a command is the first word"),
        ("-v", "`-v` comes too early: AMOUNT or a command is the first word"),
        ("-- 2", "`--` comes too early: AMOUNT or a command is the first word"),
        ("help nothing", "`nothing` is not a command; see `gpu-coord --help`"),
        ("help discover", "`discover` is not a command; see `gpu-coord --help`"),

        ("2 --enable-coordinatoin", "`--enable-coordinatoin` is not an option of `gpu-coord AMOUNT`; did you mean `--enable-coordination-mode`?"),
        ("2 --enable", "`--enable` is not an option of `gpu-coord AMOUNT`; did you mean `--enable-coordination-mode`?"),
        ("2 --Print=uuid", "`--Print` is not an option of `gpu-coord AMOUNT`; did you mean `--print`?"),
        ("2 --hlep", "`--hlep` is not an option of `gpu-coord AMOUNT`; did you mean `--help`?"),
        ("2 --colour", "`--colour` is not an option of `gpu-coord AMOUNT`; see `gpu-coord 1 --help`"),
        ("2 -x", "`-x` is not an option of `gpu-coord AMOUNT`; see `gpu-coord 1 --help`"),
        ("2 --json", "`--json` is not an option of `gpu-coord AMOUNT`; see `gpu-coord 1 --help`"),
        ("status --cgroup", "`--cgroup` is not an option of `gpu-coord status`; see `gpu-coord status --help`"),
        ("deallocateAll --print=uuid", "`--print` is not an option of `gpu-coord deallocateAll`; see `gpu-coord deallocateAll --help`"),

        ("2 3", "`3` is one argument too many; see `gpu-coord 1 --help`"),
        ("2 1", "`1` is one argument too many; see `gpu-coord 1 --help`"),
        ("2 --cgroup v1", "`v1` is one argument too many; if it is the value of --cgroup, write `--cgroup=v1`"),
        ("exec 2 --wait 30 -- true", "`30` is one argument too many; if it is the value of --wait, write `--wait=30`"),
        ("2 status", "`status` is one argument too many; see `gpu-coord 1 --help`"),
        ("2 -- 3", "`3` is one argument too many; see `gpu-coord 1 --help`"),
        ("2 null null", "`null` is one argument too many; see `gpu-coord 1 --help`"),
        ("2 -v null", "`null` is one argument too many; see `gpu-coord 1 --help`"),
        ("allocate 2 null", "`null` is one argument too many; see `gpu-coord allocate --help`"),
        ("status null", "`null` is one argument too many; see `gpu-coord status --help`"),
        ("deallocate-all 2", "`2` is one argument too many; see `gpu-coord deallocateAll --help`"),

        ("2 --coordination-file", "--coordination-file needs a value; see `gpu-coord 1 --help`"),
        ("2 --coordination-file=", "--coordination-file needs a value; see `gpu-coord 1 --help`"),
        ("2 --coordination-file --enable-coordination-mode", "--coordination-file needs a value; see `gpu-coord 1 --help`"),
        ("2 --print", "--print needs a value; it takes index, host-index, uuid, pci, env, json or spark"),
        ("2 --print=", "--print needs a value; it takes index, host-index, uuid, pci, env, json or spark"),
        ("2 --print=uid", "--print cannot be `uid`: it takes index, host-index, uuid, pci, env, json or spark"),
        ("status --json=yes", "--json takes no value, not `yes`"),
        ("2 --cgroup=v3", "--cgroup cannot be `v3`: it takes v1, v2 or best-effort"),
        ("2 --deadline 0", "--deadline cannot be `0`: it takes seconds, more than 0 and at most 86400"),
        ("2 --deadline=-1", "--deadline cannot be `-1`: it takes seconds, more than 0 and at most 86400"),
        ("2 --deadline NaN", "--deadline cannot be `NaN`: it takes seconds, more than 0 and at most 86400"),
        ("2 --deadline 1e9", "--deadline cannot be `1e9`: it takes seconds, more than 0 and at most 86400"),
        ("2 --owner 0", "--owner cannot be `0`: it takes the pid of a process, from 1 to 4194303"),
        ("2 --owner 4194305", "--owner cannot be `4194305`: it takes the pid of a process, from 1 to 4194303"),
        ("2 --owner=-1", "--owner cannot be `-1`: it takes the pid of a process, from 1 to 4194303"),

        ("2 --print=uuid --print=uuid", "--print is given twice"),
        ("2 -v --verbose", "--verbose is given twice"),
        ("2 --enable-coordination --enable-coordination-mode", "--enable-coordination-mode is given twice"),
        ("allocate 2 --no-coordination --enable-coordination", "--no-coordination and --enable-coordination-mode contradict each other"),
    ] {
        refuses(&words(line), &[], message);
    }
}

#[test]
fn words_that_are_not_utf_8_are_refused_or_taken_as_bytes() {
    let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let (two, odd) = (word(b"2"), word(b"\xff"));
    refuses(std::slice::from_ref(&odd), &[], "AMOUNT cannot be `\u{fffd}`: it takes a whole number of units");
    refuses(
        &[two.clone(), word(b"--\xff")],
        &[],
        "`--\u{fffd}` is not an option of `gpu-coord AMOUNT`; see `gpu-coord 1 --help`",
    );
    refuses(
        &[two.clone(), odd.clone()],
        &[],
        "`\u{fffd}` is one argument too many; see `gpu-coord 1 --help`",
    );
    refuses(
        &[two.clone(), word(b"--deadline=\xff")],
        &[],
        "an argument is not UTF-8; see `gpu-coord 1 --help`",
    );
    let (status, stdout, _) = ended(program(&[two, word(b"--coordination-file"), odd], &[SIMULATED]));
    assert_eq!((status, stdout.as_str()), (0, "0,1\n"), "a path is bytes");
}

#[test]
#[rustfmt::skip] // a table
fn the_words_that_flink_passes() {
    for line in ["2", "2 null", "2 -v", "2 --no-coordination", "2 --check-dead", "2 --source=simulated:8",
                 "allocate 2 --no-coordination", "allocate --print host-index 2 --no-coordination"] {
        let (status, stdout, _) = ended(program(&words(line), &[SIMULATED]));
        assert_eq!((status, stdout.as_str()), (0, "0,1\n"), "{line}");
    }
    answers(&["0"], &[SIMULATED], "", "");
}

#[test]
fn both_spellings_of_coordination_coordinate() {
    for spelling in ["--enable-coordination-mode", "--enable-coordination"] {
        let record = Record::new();
        let command = record.program(&["2", spelling]);
        assert_eq!(ended(command), (0, "0,1\n".to_owned(), String::new()), "{spelling}");
        assert_eq!(record.held(), 2, "{spelling}");
        assert_eq!(ended(record.program(&["2", spelling])).1, "2,3\n", "{spelling}");
    }
}

#[test]
#[rustfmt::skip] // a table
fn the_environment_sets_options_and_the_command_line_wins() {
    for (line, variable, stdout) in [
        ("1",                    ("GPU_COORD_PRINT", "pci"),         "fffffff0:00:00.0\n"),
        ("allocate 1 --no-coordination", ("GPU_COORD_PRINT", "pci"), "fffffff0:00:00.0\n"),
        ("1 --print index",      ("GPU_COORD_PRINT", "pci"),         "0\n"),
        ("1 --print index",      ("GPU_COORD_PRINT", "odd"),         "0\n"),
        ("1",                    ("GPU_COORD_PRINT", ""),            "0\n"),
        ("1 --no-coordination",  ("GPU_COORD_ENABLE_COORDINATION", "1"),      "0\n"),
        ("1 --no-coordination",  ("GPU_COORD_ENABLE_COORDINATION_MODE", "1"), "0\n"),
        ("1",                    ("GPU_COORD_JSON", "odd"),          "0\n"),
        ("1 --no-coordination",  ("GPU_COORD_GRANT", "0123"),        "0\n"),
        ("1 null",               ("GPU_COORD_VERBOSE", "no"),        "0\n"),
    ] {
        answers(&words(line), &[SIMULATED, variable], stdout, "");
    }
}

/// Open, but neither readable nor writable.
#[test]
fn a_stream_that_is_only_a_place_is_let_be() {
    let place = File::options().read(true).custom_flags(libc::O_PATH).open("/").unwrap();
    let mut command = Command::new(PROGRAM);
    command.env_clear().args(["2", "--source", "simulated:2"]).stdin(place);
    assert_eq!(ended(command), (0, "0,1\n".to_owned(), String::new()));
}

#[test]
fn a_value_with_a_blank_comes_by_the_environment() {
    let record = Record::new();
    let path = record.directory.path().join("a record");
    let variables = [
        SIMULATED,
        ("GPU_COORD_ENABLE_COORDINATION", "yes"),
        ("GPU_COORD_COORDINATION_FILE", path.to_str().unwrap()),
        ("GPU_COORD_OWNER", &std::process::id().to_string()),
    ];
    answers(&["2", "null"], &variables, "0,1\n", "");
    assert_eq!(held(&path), 2);
}

#[test]
#[rustfmt::skip] // a table
fn a_wrong_variable_is_named() {
    for (name, value, message) in [
        ("GPU_COORD_PRINT",    "uid",  "it takes index, host-index, uuid, pci, env, json or spark"),
        ("GPU_COORD_DEADLINE", "soon", "it takes seconds, more than 0 and at most 86400"),
        ("GPU_COORD_OWNER",    "0",    "it takes the pid of a process, from 1 to 4194303"),
        ("GPU_COORD_VERBOSE",  "on",   "it takes 1, true, yes, 0, false or no"),
        ("GPU_COORD_ENABLE_COORDINATION", "2", "it takes 1, true, yes, 0, false or no"),
    ] {
        refuses(&["2"], &[(name, value)], &format!("{name} cannot be `{value}`: {message}"));
    }
    refuses(
        &["2"],
        &[("GPU_COORD_NO_COORDINATION", "1"), ("GPU_COORD_ENABLE_COORDINATION_MODE", "1")],
        "GPU_COORD_ENABLE_COORDINATION_MODE and GPU_COORD_NO_COORDINATION contradict each other",
    );
}

#[test]
#[rustfmt::skip] // a table
fn an_unknown_variable_is_warned_of() {
    for (name, warning) in [
        ("GPU_COORD_PRNT",   "GPU_COORD_PRNT is not a variable of gpu-coord; did you mean GPU_COORD_PRINT?"),
        ("GPU_COORD_COLOUR", "GPU_COORD_COLOUR is not a variable of gpu-coord"),
    ] {
        answers(&["1"], &[SIMULATED, (name, "pci")], "0\n", &format!("gpu-coord: warning: {warning}\n"));
        answers(&["1"], &[SIMULATED, (name, "")], "0\n", "");
    }
}

#[track_caller]
fn help(line: &str) -> String {
    let (status, stdout, stderr) = ended(program(&words(line), &[]));
    assert_eq!((status, stderr.as_str()), (0, ""), "{line}");
    let has = |text: &str| stdout.contains(text);
    assert!(has("\nUsage: gpu-coord ") && has("\nExample: gpu-coord ") && !has("discover"), "{stdout}");
    stdout
}

#[test]
fn help_is_one_screen_with_an_example() {
    let short = ["-h", "2 -h", "allocate -h", "deallocateAll -h", "reclaim -h", "status -h", "devices -h"];
    for line in short {
        let help = help(line);
        assert!(help.lines().count() <= 24, "{line}: {help}");
    }
    let long = ["--help", "help", "2 --help", "allocate --help", "deallocateAll --help", "reclaim --help"];
    for line in long.into_iter().chain(["status --help", "devices --help", "help allocate"]) {
        help(line);
    }
    for (short, long) in
        [("allocate -h", "allocate --help"), ("2 -h", "2 --help"), ("status -h", "status --help")]
    {
        let (short, long) = (help(short), help(long));
        let options = |help: &str| -> Vec<String> {
            let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
            options.map(|option| option.split([' ', '[']).next().unwrap().to_owned()).collect()
        };
        let missing = options(&short).into_iter().filter(|option| !options(&long).contains(option));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new(), "{long}");
        assert!(options(&long).contains(&"deadline".to_owned()), "{long}");
    }
    for line in ["--version", "-V"] {
        answers(&words(line), &[], concat!("gpu-coord ", env!("CARGO_PKG_VERSION"), "\n"), "");
    }
}

#[test]
fn a_stdout_that_takes_nothing_leaves_nothing_recorded() {
    let cannot = "gpu-coord: cannot write the answer to standard output: ";
    for (redirection, cause) in [
        (">&-", "Bad file descriptor (os error 9)"),
        ("1</dev/null", "Bad file descriptor (os error 9)"),
        (">/dev/full", "No space left on device (os error 28)"),
    ] {
        let record = Record::new();
        let command = redirected(record.program(&["allocate", "2"]), redirection);
        assert_eq!(ended(command), (4, String::new(), format!("{cannot}{cause}\n")), "{redirection}");
        assert_eq!(record.held(), 0, "{redirection}");
        // A full disk shows only when it is written to; the others are told before anything is recorded.
        assert_eq!(record.path().exists(), redirection == ">/dev/full", "{redirection}");

        let help = redirected(program(&["--help"], &[]), redirection);
        assert_eq!(ended(help), (4, String::new(), format!("{cannot}{cause}\n")), "{redirection}");
    }
}

#[test]
fn a_stdout_that_takes_anything_is_fine() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("answer");
    let into_file = format!(">>{}", file.display());
    for redirection in [">/dev/null", "1<>/dev/null", &into_file, ">&- 2>&- >/dev/null"] {
        let record = Record::new();
        let command = redirected(record.program(&["allocate", "2"]), redirection);
        assert_eq!(ended(command), (0, String::new(), String::new()), "{redirection}");
        assert_eq!(record.held(), 2, "{redirection}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "0,1\n");
}

#[test]
fn a_stdout_without_a_reader_leaves_nothing_recorded() {
    let record = Record::new();
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = record.program(&["allocate", "2"]);
    let (status, stderr) = ended_into(&mut command, writer.into());
    assert_eq!(status, 4);
    assert_eq!(stderr, "gpu-coord: cannot write the answer to standard output: Broken pipe (os error 32)\n");
    assert!(!record.path().exists(), "told before anything is recorded");
}

#[test]
fn a_stdout_that_is_never_read_costs_no_more_than_the_deadline() {
    let record = Record::new();
    let (_reader, writer) = full_pipe();
    let mut command = record.program(&["allocate", "2", "--deadline", "0.3"]);
    let started = Instant::now();
    let (status, stderr) = ended_into(&mut command, writer.into());
    assert_eq!(status, 3);
    assert_eq!(
        stderr,
        "gpu-coord: the deadline of 0.3 s passed while waiting for the reader of standard output\n"
    );
    assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(!record.path().exists(), "told before anything is recorded");
}

#[test]
fn a_stderr_that_takes_nothing_changes_nothing() {
    let variables = [SIMULATED, ("GPU_COORD_COLOUR", "a warning")];
    for redirection in ["2>&-", "2>/dev/full", "2</dev/null"] {
        let granted = redirected(program(&["2"], &variables), redirection);
        assert_eq!(ended(granted), (0, "0,1\n".to_owned(), String::new()), "{redirection}");
        let refused = redirected(program(&["abc"], &[]), redirection);
        assert_eq!(ended(refused), (2, String::new(), String::new()), "{redirection}");
    }
    let all_closed = redirected(program(&["2"], &variables), "<&- >&- 2>&-");
    assert_eq!(ended(all_closed), (4, String::new(), String::new()));
}

/// The next file would be opened in its place, by us or by the command, and what is meant for the stream written there.
#[test]
fn a_stream_that_was_closed_is_dev_null_for_the_command_too() {
    for (redirections, streams) in [("<&-", "0"), ("2>&-", "2"), ("<&- 2>&-", "0 2")] {
        let record = Record::new();
        let mut command = program(&["exec", "1"], &[SIMULATED, ("PATH", "/usr/bin:/bin")]);
        command.arg("--coordination-file").arg(record.path()).args(["--", "sh", "-c"]);
        command.arg(format!("for stream in {streams}; do readlink /proc/$$/fd/$stream; done"));
        let shown = "/dev/null\n".repeat(streams.split(' ').count());
        assert_eq!(ended(redirected(command, redirections)), (0, shown, String::new()), "{redirections}");
    }
}

/// poll(2) takes no more descriptors than a process may have, here less than the three streams.
#[test]
fn streams_that_cannot_be_asked_about_together_are_asked_one_by_one() {
    let mut command = Command::new("timeout");
    command
        .args(["60", "prlimit", "--nofile=2", PROGRAM, "2"])
        .env_clear()
        .envs([SIMULATED])
        .stdin(Stdio::null());
    assert_eq!(ended(command), (0, "0,1\n".to_owned(), String::new()));
}

#[test]
fn a_stderr_that_is_never_read_costs_no_more_than_the_deadline() {
    let variables = [SIMULATED, ("GPU_COORD_COLOUR", "a warning"), ("GPU_COORD_DEADLINE", "0.3")];
    let (_reader, writer) = full_pipe();
    let started = Instant::now();
    let output = program(&["2"], &variables).stderr(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"0,1\n"[..]));
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

#[test]
fn a_message_is_one_short_line_whatever_it_quotes() {
    refuses(
        &["2", "--a\nb\x1b[31m"],
        &[],
        "`--a\\nb\\u{1b}[31m` is not an option of `gpu-coord AMOUNT`; see `gpu-coord 1 --help`",
    );
    let (status, _, stderr) = ended(program(&["2", &"x".repeat(100_000)], &[]));
    assert_eq!((status, stderr.lines().count()), (2, 1));
    assert!(stderr.len() < 4096 && stderr.ends_with("xxx...\n"), "{} bytes", stderr.len());
}

#[test]
fn raised_privilege_believes_neither_options_nor_environment() {
    let test = "raised_privilege_believes_neither_options_nor_environment";
    let Some(installed) = Installed::with_set_user_id(test) else { return };
    let marker = installed.directory.path().join("marker");
    let tools = installed.tools(&format!("#!/bin/sh\n: > {}\n", marker.display()));
    let cause = "is ignored: this program runs with more rights than its caller";
    let warning = |what: &str| format!("gpu-coord: warning: {what} {cause}\n");
    let root = ["2", "--source", "simulated:8", "--root", "/nowhere", "--driver-root", "/nowhere"];
    for (arguments, variables, ignored) in [
        (&root[..3], &[][..], &[][..]),
        (&root[..], &[], &["--root", "--driver-root"]),
        (&root[..3], &[("GPU_COORD_PRINT", "pci")], &["the environment"]),
        (&[&root[..3], &["--config", "/nowhere", "--log", "/nowhere"]].concat(), &[], &["--config", "--log"]),
        (&root[..3], &[("CUDA_VISIBLE_DEVICES", "7")], &[]),
    ] {
        let stderr: String = ignored.iter().map(|what| warning(what)).collect();
        let command = installed.program(arguments, variables);
        assert_eq!(ended(command), (0, "0,1\n".to_owned(), stderr), "{arguments:?} {variables:?}");
        let strict = ended(installed.program(&[arguments, &["--strict"]].concat(), variables));
        let error = ignored.first().map(|what| format!("gpu-coord: {what} {cause} (an error by --strict)\n"));
        let wanted = error.map_or((0, "0,1\n".to_owned(), String::new()), |error| (4, String::new(), error));
        assert_eq!(strict, wanted, "{arguments:?} {variables:?}");
    }
    let path = [("PATH", tools.to_str().unwrap())];
    let (_, stdout, stderr) = ended(installed.program(&["1", "--source", "nvidia-smi"], &path));
    assert!(!marker.exists(), "the caller's nvidia-smi ran: {stdout}{stderr}");
}

/// A coordination file of this test's own, in which this process is the owner.
struct Record {
    directory: TempDir,
}

impl Record {
    fn new() -> Record {
        Record { directory: TempDir::new().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("coordination")
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = program(arguments, &[SIMULATED]);
        command.arg("--coordination-file").arg(self.path());
        command.args(["--owner", &std::process::id().to_string()]);
        command
    }

    fn held(&self) -> usize {
        held(&self.path())
    }
}

/// The lines that hold a unit; none if there is no file.
fn held(path: &Path) -> usize {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())).count()
}

/// The same command with the shell's redirections; what they leave alone is read by the test.
fn redirected(command: Command, redirections: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(format!("exec \"$0\" \"$@\" {redirections}"));
    shell.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

fn ended_into(command: &mut Command, stdout: Stdio) -> (i32, String) {
    let child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A pipe that takes not one byte more. Filled by exactly its size: `O_NONBLOCK` would be the program's too.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let size = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).unwrap();
    writer.write_all(&vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
    (reader, writer)
}

/// A copy of the program that root owns and nobody runs.
struct Installed {
    directory: TempDir,
}

impl Installed {
    const NOBODY: u32 = 65_534;

    /// `None`, with a notice, if it cannot be made.
    fn with_set_user_id(test: &str) -> Option<Installed> {
        if !nix::unistd::geteuid().is_root() {
            skip(test, "a set-user-ID program can be made by root alone");
            return None;
        }
        let directory = TempDir::new().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let installed = Installed { directory };
        // By another process: a copy that this one has open for writing, if only in a child that another
        // test is about to start, cannot be executed.
        let mut install = Command::new("install");
        install.args(["-m", "4755", PROGRAM]).arg(installed.executable());
        assert_eq!(ended(install), (0, String::new(), String::new()));
        if !installed.raises() {
            skip(test, "the kernel heeds no set-user-ID here");
            return None;
        }
        Some(installed)
    }

    fn executable(&self) -> PathBuf {
        self.directory.path().join("gpu-coord")
    }

    /// Whether the kernel heeds the mode: not on a `nosuid` mount, nor under `no_new_privs`.
    fn raises(&self) -> bool {
        let flags = nix::sys::statvfs::statvfs(self.directory.path()).unwrap().flags();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        !flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID) && status.contains("NoNewPrivs:\t0")
    }

    fn program(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(self.executable());
        command.env_clear().envs(variables.iter().copied()).args(arguments).stdin(Stdio::null());
        command.uid(Self::NOBODY).gid(Self::NOBODY).current_dir("/");
        command
    }

    /// A directory whose nvidia-smi is this script.
    fn tools(&self, script: &str) -> PathBuf {
        let tools = self.directory.path().join("tools");
        fs::create_dir(&tools).unwrap();
        let tool = tools.join("nvidia-smi");
        let mut file = File::create(&tool).unwrap();
        file.write_all(script.as_bytes()).unwrap();
        file.set_permissions(Permissions::from_mode(0o755)).unwrap();
        tools
    }
}

#[test]
fn an_answer_is_what_other_engines_read() {
    let uuid = |index: u32| format!("GPU-00000000-0000-4000-8000-00000000000{index}");
    let env = format!(
        "CUDA_VISIBLE_DEVICES={0},{1}\nNVIDIA_VISIBLE_DEVICES={0},{1}\nCUDA_DEVICE_ORDER=PCI_BUS_ID\n",
        uuid(0),
        uuid(1)
    );
    answers(&words("2 --source simulated:3 --print env"), &[], &env, "");
    answers(
        &words("2 --source simulated:3 --print spark"),
        &[],
        "{\"addresses\":[\"0\",\"1\"],\"name\":\"gpu\"}\n",
        "",
    );
    let json = format!(
        "{{\"environment\":{{\"CUDA_DEVICE_ORDER\":\"PCI_BUS_ID\",\"CUDA_VISIBLE_DEVICES\":\"{0}\",\"NVIDIA_VISIBLE_DEVICES\":\
         \"{0}\"}},\"units\":[{{\"id\":null,\"index\":0,\"pci\":\"fffffff0:00:00.0\",\"slot\":null,\"uuid\":\"{0}\"}}],\"version\":1}}\n",
        uuid(0)
    );
    answers(&words("1 --source simulated:3 --print json"), &[], &json, "");
    // As Spark's worker calls its discovery script: without arguments.
    let set = [("GPU_COORD_AMOUNT", "3"), ("GPU_COORD_SOURCE", "simulated:3"), ("GPU_COORD_PRINT", "spark")];
    answers(&[], &set, "{\"addresses\":[\"0\",\"1\",\"2\"],\"name\":\"gpu\"}\n", "");
}
