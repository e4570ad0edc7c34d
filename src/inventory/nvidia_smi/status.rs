//! What `nvidia-smi` means by its exit status: NVML's return codes, and a few of its own.

use std::os::unix::process::ExitStatusExt;

use crate::host::child::Output;
use crate::inventory::answer::{Answer, Silence};
use crate::inventory::nvidia_smi::fields::Extra;
use crate::inventory::nvidia_smi::rows::{self, Report};
use crate::inventory::text::quote;

const BAD_ARGUMENT: i32 = 2;
const NOT_FOUND: i32 = 6;
const INFOROM: i32 = 14;
const LOST: i32 = 15;
const UNKNOWN: i32 = 255;

/// The meaning of an unknown status.
pub(in crate::inventory) const UNNAMED: &str = "an error without a name";
const BY_HAND: &str = "run nvidia-smi by hand, and look at `dmesg`";

/// The devices that `output` names, if its exit status and its text agree. `extras`: the optional fields that were
/// asked for.
pub(super) fn judge(output: &Output, extras: &[Extra]) -> Answer {
    let stdout = String::from_utf8_lossy(&output.stdout);
    match (output.status.code(), rows::parse(&stdout, extras)) {
        (Some(0), Ok(report)) => devices(report),
        (Some(0), Err(problem)) => Err(Silence::Broken { why: anyhow::Error::msg(problem), cure: BY_HAND }),
        (Some(NOT_FOUND), Ok(report)) if report.lost.is_empty() => nothing(report.none),
        (Some(code), Ok(report)) if explains(code, &report) => despite(code, report),
        _ => Err(failed(output)),
    }
}

/// Whether a field of the query is refused; the output then names it.
pub(super) fn refuses_a_field(output: &Output) -> bool {
    output.status.code() == Some(BAD_ARGUMENT)
}

fn devices(report: Report) -> Answer {
    let none = report.none;
    let found = report.found();
    if found.devices.is_empty() { nothing(none) } else { Ok(found) }
}

/// `said`: whether it says so. If it printed nothing, it could also be a wrapper that does not reach the tool.
fn nothing(said: bool) -> Answer {
    let why = if said { "it finds no device" } else { "it printed no device" };
    Err(Silence::Nothing { why: why.to_owned(), sure: said })
}

/// Whether this failure is about one card and leaves the list valid.
fn explains(code: i32, report: &Report) -> bool {
    match code {
        INFOROM | LOST => true,
        // The tool ends so if the card after a lost one has an unknown error, or if there is none.
        NOT_FOUND | UNKNOWN => !report.lost.is_empty(),
        _ => false,
    }
}

fn despite(code: i32, report: Report) -> Answer {
    let mut found = devices(report).map_err(|_| {
        let why = anyhow::anyhow!("exit status {code}: {}, and it printed no device", cause(code).0);
        Silence::Broken { why, cure: cause(code).1 }
    })?;
    let (what, cure) = cause(code);
    found.warnings.push(format!("nvidia-smi: exit status {code}: {what}; {cure}"));
    Ok(found)
}

/// Why an output is not an answer.
pub(super) fn failed(output: &Output) -> Silence {
    let (what, cure) = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => (format!("exit status {code}: {}", cause(code).0), cause(code).1),
        (None, Some(signal)) => (format!("signal {signal} ended it"), BY_HAND),
        (None, None) => ("it ended in no known way".to_owned(), BY_HAND),
    };
    let said = first_line(output);
    let said = if said.is_empty() { said } else { format!(" (`{said}`)") };
    Silence::Broken { why: anyhow::anyhow!("{what}{said}"), cure }
}

/// The tool's explanation, which can be on either stream.
fn first_line(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut lines = stdout.lines().chain(stderr.lines());
    lines.find(|line| !line.trim().is_empty()).map(quote).unwrap_or_default()
}

/// What a status means, and what to do about it.
#[rustfmt::skip] // a table
pub(in crate::inventory) fn cause(code: i32) -> (&'static str, &'static str) {
    match code {
        BAD_ARGUMENT => ("it does not know what it was asked for", "it is older than this program needs: try `--source procfs`"),
        3       => ("a card does not support what it was asked for", BY_HAND),
        4       => ("no permission", "run it as a user who may open the GPUs' device nodes"),
        NOT_FOUND => ("it found nothing", BY_HAND),
        8       => ("a card has no power from its cables", "look at the cables of the card"),
        9       => ("the driver is not loaded", "load it (`modprobe nvidia`), and look at `dmesg` if that fails"),
        10      => ("the kernel has trouble with a card's interrupts", BY_HAND),
        12      => ("libnvidia-ml.so.1 is not found", "install the library of the driver's version"),
        13      => ("its library lacks a function", "install the library and the driver in one version"),
        INFOROM => ("the infoROM of a card is corrupted", "the card works; its maker can repair it"),
        LOST    => ("a card has fallen off the bus", "reset the card or restart the host"),
        18      => ("the driver that is loaded and its library differ in version", "reload the driver's modules or restart the host"),
        126     => ("what it wraps cannot be run", BY_HAND),
        127     => ("what it wraps is not there", BY_HAND),
        UNKNOWN => ("an unknown error", BY_HAND),
        _       => (UNNAMED, BY_HAND),
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;
    use crate::device::Health;

    const ROW: &str = "0, GPU-1, 0000:01:00.0, A, 16\n";
    const OFF: &str = "Unable to determine the device handle for GPU 0000:02:00.0: Unknown Error\n";
    const NONE: &str = "No devices were found\n";

    fn output(status: i32, stdout: &str, stderr: &str) -> Output {
        Output { status: ExitStatus::from_raw(status), stdout: stdout.into(), stderr: stderr.into() }
    }

    fn exit(code: i32) -> i32 {
        code << 8
    }

    #[test]
    #[rustfmt::skip] // a table
    fn usable() {
        for (case, code, stdout, sound, sick, warnings) in [
            ("all well",                        0,   ROW.to_owned(),          1, 0, 0),
            ("a lost card among good ones",     0,   format!("{OFF}{ROW}"),   1, 1, 1),
            ("the same, by the status",         15,  format!("{OFF}{ROW}"),   1, 1, 2),
            ("the same, with another status",   255, format!("{OFF}{ROW}"),   1, 1, 2),
            ("the only card is lost",           6,   format!("{OFF}{NONE}"),  0, 1, 2),
            ("a lost card that is not named",   15,  ROW.to_owned(),          1, 0, 1),
            ("infoROM",                         14,  format!("{ROW}WARNING: infoROM is corrupted at gpu 0000:01:00.0\n"), 1, 0, 2),
        ] {
            let found = judge(&output(exit(code), &stdout, ""), &[]).expect(case);
            let healthy = found.devices.iter().filter(|device| device.health == Health::Sound).count();
            assert_eq!((healthy, found.devices.len() - healthy), (sound, sick), "{case}");
            assert_eq!(found.warnings.len(), warnings, "{case}: {:?}", found.warnings);
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn broken() {
        for (case, status, stdout, stderr, says) in [
            ("no driver",           exit(9),   "NVIDIA-SMI has failed because it couldn't", "", "exit status 9: the driver is not loaded (`NVIDIA-SMI has failed because it couldn't`)"),
            ("mismatch",            exit(18),  "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n", "", "exit status 18: the driver that is loaded and its library differ in version (`Failed to"),
            ("no library",          exit(12),  "",           "",           "exit status 12: libnvidia-ml.so.1 is not found"),
            ("no permission",       exit(4),   "",           "",           "exit status 4: no permission"),
            ("says it on stderr",   exit(1),   "\n",         "\nno way\n", "exit status 1: an error without a name (`no way`)"),
            ("a wrapper",           exit(127), "",           "exec: nvidia-smi: not found\n", "exit status 127: what it wraps is not there"),
            ("rows and 255",        exit(255), ROW,          "",           "exit status 255: an unknown error (`0, GPU-1"),
            ("rows and 9",          exit(9),   ROW,          "",           "exit status 9: the driver is not loaded"),
            ("nothing and 15",      exit(15),  "",           "",           "exit status 15: a card has fallen off the bus, and it printed no device"),
            ("nothing and 14",      exit(14),  "",           "",           "exit status 14: the infoROM of a card is corrupted, and it printed no device"),
            ("a crash",             11,        ROW,          "",           "signal 11 ended it"),
            ("a sentence, status 0", exit(0),  "Failed to initialize NVML: Unknown Error\n", "", "it printed something that is not a card: `Failed to initialize NVML: Unknown Error`"),
        ] {
            match judge(&output(status, stdout, stderr), &[]) {
                Err(Silence::Broken { why, .. }) => assert!(why.to_string().starts_with(says), "{case}: {why}"),
                other => panic!("{case}: {other:?}"),
            }
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn there_is_none() {
        for (case, code, stdout, is_sure) in [
            ("it says so",             6, NONE,       true),
            ("it says so, status 0",   0, NONE,       true),
            ("it prints nothing",      0, "",         false),
            ("only line ends",         0, "\n\n",     false),
            ("nothing, and status 6",  6, "",         false),
        ] {
            match judge(&output(exit(code), stdout, ""), &[]) {
                Err(Silence::Nothing { sure, .. }) => assert_eq!(sure, is_sure, "{case}"),
                other => panic!("{case}: {other:?}"),
            }
        }
    }
}
