//! The line that the child prints, and what it means if there is none.

use std::os::unix::process::ExitStatusExt;

use serde::Deserialize;

use crate::host::child::Output;
use crate::inventory::answer::Silence;
use crate::inventory::nvml::card::Card;
use crate::inventory::nvml::trouble::Trouble;
use crate::inventory::text::quote;

/// The beginning of its line (`nvml-child/main.rs`); anything else on standard output is from the library.
const MARK: &str = "gpu-coord-nvml 1 ";
const BY_HAND: &str = "run nvidia-smi by hand, and look at `dmesg`";

#[derive(Debug, Deserialize)]
pub(super) struct Report {
    pub(super) driver: Option<String>,
    #[serde(default, rename = "devices")]
    pub(super) cards: Vec<Card>,
    error: Option<Trouble>,
}

/// Parses the answer; a report has at least one card.
pub(super) fn read(output: &Output, is_expected: impl FnOnce() -> bool) -> Result<Report, Silence> {
    let broken = |why: String| Silence::Broken { why: anyhow::Error::msg(why), cure: BY_HAND };
    let report = parse(output).map_err(broken)?;
    match report.error {
        Some(trouble) => Err(trouble.silence(is_expected)),
        None if report.cards.is_empty() => {
            Err(Silence::Nothing { why: "it finds no device".to_owned(), sure: true })
        }
        None => Ok(report),
    }
}

fn parse(output: &Output) -> Result<Report, String> {
    if !output.status.success() {
        return Err(ended(output));
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix(MARK));
    let line = line.ok_or_else(|| format!("it ended without an answer{}", said(output)))?;
    serde_json::from_str(line).map_err(|err| format!("its answer cannot be read: {err}"))
}

/// The library crashed, or the child could not be loaded at all.
fn ended(output: &Output) -> String {
    let how = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended in no known way".to_owned(),
    };
    how + &said(output)
}

fn said(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().find(|line| !line.trim().is_empty());
    line.map(|line| format!(" (`{}`)", quote(line))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    const ONE: &str = r#"{"driver": "550.54.15", "devices": [{"index": 0, "uuid": "GPU-1"}]}"#;

    fn output(status: i32, stdout: &str, stderr: &str) -> Output {
        Output { status: ExitStatus::from_raw(status), stdout: stdout.into(), stderr: stderr.into() }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn the_line_is_found_among_noise() {
        for (case, stdout) in [
            ("alone",       format!("\ngpu-coord-nvml 1 {ONE}\n")),
            ("before",      format!("hello\ngpu-coord-nvml 2 {{}}\n\ngpu-coord-nvml 1 {ONE}\n")),
            ("half a line", format!("NVRM: gpu-coord-nvml 1 {{\ngpu-coord-nvml 1 {ONE}\n")),
            ("after",       format!("\ngpu-coord-nvml 1 {ONE}\ngpu-coord-nvml 1 {{}}\nbye")),
        ] {
            let report = read(&output(0, &stdout, "warning\n"), || true).expect(case);
            assert_eq!((report.driver.as_deref(), report.cards.len()), (Some("550.54.15"), 1), "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn broken() {
        let told = |json: &str| format!("\ngpu-coord-nvml 1 {json}\n");
        let error = |code: u32| told(&format!(r#"{{"error": {{"code": {code}, "text": "its words"}}}}"#));
        for (case, status, stdout, stderr, says) in [
            ("a crash",             11,     told(ONE),          "",           "signal 11 ended it"),
            ("an abort",            6,      String::new(),      "free(): invalid pointer\n", "signal 6 ended it (`free(): invalid pointer`)"),
            ("an old C library",    1 << 8, String::new(),      "\nx: version `GLIBC_2.34' not found\n", "exit status 1 (`x: version `GLIBC_2.34' not found`)"),
            ("an exit",             0,      "bye\n".to_owned(), "",           "it ended without an answer"),
            ("a cut line",          0,      "gpu-coord-nvml 1 {\"dev".to_owned(), "", "its answer cannot be read: EOF"),
            ("no driver",           0,      error(9),           "",           "the driver is not loaded"),
            ("two versions",        0,      error(18),          "",           "the driver that is loaded and its library differ in version"),
            ("no permission",       0,      error(4),           "",           "no permission"),
            ("no library",          0,      error(12),          "",           "its words"),
            ("no function",         0,      error(13),          "",           "its words"),
            ("unknown",             0,      error(999),         "",           "its words"),
        ] {
            match read(&output(status, &stdout, stderr), || true) {
                Err(Silence::Broken { why, .. }) => assert!(why.to_string().starts_with(says), "{case}: {why}"),
                other => panic!("{case}: {other:?}"),
            }
        }
    }

    #[test]
    fn there_is_none() {
        let none = output(0, "\ngpu-coord-nvml 1 {\"devices\": []}\n", "");
        assert!(matches!(read(&none, || true), Err(Silence::Nothing { sure: true, .. })));
        for (code, is_absent) in [(12, true), (9, true), (18, false)] {
            let error =
                format!("\ngpu-coord-nvml 1 {{\"error\": {{\"code\": {code}, \"text\": \"why\"}}}}\n");
            let answer = read(&output(0, &error, ""), || false);
            assert_eq!(matches!(answer, Err(Silence::Absent(_))), is_absent, "{code}");
        }
    }
}
