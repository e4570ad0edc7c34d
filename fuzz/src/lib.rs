//! What is promised of everything that reads outside text, as functions of any bytes: none of it panics, and what
//! is understood prints back to itself.
//!
//! `targets/` gives the bytes of the fuzzer to them, one a target, and `tests/corpus.rs` those of the corpus.

// A copy of the program: its lints are its own.
#![allow(dead_code, unfulfilled_lint_expectations)]

include!(concat!(env!("OUT_DIR"), "/src/modules.rs"));

mod amd;
mod argv;
mod devices;
mod host_files;
mod nvidia;
mod record;
mod yaml;

/// What a target is called, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// In the order in which `fuzz/run` runs them.
pub const TARGETS: [Target; 17] = [
    ("record", record::record),
    ("stat", host_files::stat),
    ("status", host_files::status),
    ("cgroup", host_files::cgroup),
    ("mountinfo", host_files::mountinfo),
    ("tables", host_files::tables),
    ("nvidia_csv", nvidia::csv),
    ("nvidia_list", nvidia::list),
    ("nvidia_xml", nvidia::xml),
    ("nvml", nvidia::nvml),
    ("rocm_smi", amd::rocm_smi),
    ("amd_smi", amd::amd_smi),
    ("kfd", amd::kfd),
    ("devices", devices::devices),
    ("config", yaml::config),
    ("check", yaml::check),
    ("argv", argv::argv),
];

/// Runs a target on some bytes.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(other, _)| *other == name);
    let (_, property) = target.unwrap_or_else(|| panic!("there is no target {name}"));
    property(bytes);
}

/// As the program makes text of bytes that need not be any.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What is shown to people, or stands in a message of one line.
#[track_caller]
pub(crate) fn assert_shown(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?} holds a control character");
}
