//! What AMD's two tools have in common: how they are run, how a missing answer is judged ([`silence`]), and how the
//! devices are put into HIP's order ([`order`]).

mod json;
mod order;
mod silence;

use std::time::Duration;

use serde_json::Value;

use crate::device::PciAddress;
use crate::host::child::{self, Command, Output};
use crate::inventory::answer::{Answer, Silence};
use crate::inventory::sysfs::Node;
use crate::inventory::{Settings, tool};
use crate::plain;

/// Where ROCm's own packages install the tools; few services have it in their PATH.
const DIRECTORY: &str = "/opt/rocm/bin";
const PATIENCE: &str = "allow more time (`--deadline`), or use `--source sysfs`, which needs no tool";
const BY_HAND: &str = "run it by hand, or use `--source sysfs`, which needs no tool";

/// The GPUs of KFD, or why there are none.
pub(super) type Kfd = Result<Vec<Node>, Silence>;

/// A GPU as a tool lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    /// The tool's name for it.
    pub(super) label: String,
    pub(super) pci: Option<PciAddress>,
    /// KFD's number of the GPU, and of its node in the topology.
    pub(super) gpu_id: Option<u64>,
    pub(super) node: Option<u64>,
    pub(super) unique_id: Option<u64>,
    pub(super) name: Option<String>,
    pub(super) memory_mib: Option<u64>,
    pub(super) memory_used_mib: Option<u64>,
    pub(super) uncorrected_errors: Option<u64>,
}

pub(super) fn run(
    tool: &str,
    args: &[&str],
    settings: &Settings,
    limit: Duration,
) -> Result<Output, Silence> {
    let run = |program: &str| {
        let mut command = Command::new(program);
        if let Some(path) = &settings.search_path {
            command.env_clear().env("PATH", path);
        }
        child::run(command.args(args), limit)
    };
    let missing = || format!("no {tool} in PATH");
    for program in [tool.to_owned(), format!("{DIRECTORY}/{tool}")] {
        if tool::is_missing(&program, settings) {
            continue;
        }
        match run(&program) {
            Err(failure) if failure.is_missing() => {}
            output => {
                return output.map_err(|failure| Silence::of_child(failure, limit, missing(), PATIENCE));
            }
        }
    }
    Err(Silence::Absent(missing()))
}

/// The JSON values that a tool printed.
pub(super) fn values(output: &Output) -> Result<Vec<Value>, Silence> {
    let broken = |why: String| Silence::Broken { why: anyhow::Error::msg(why), cure: BY_HAND };
    if output.status.code().is_none() {
        return Err(broken(format!("{} ended it", output.status)));
    }
    json::values(&String::from_utf8_lossy(&output.stdout)).map_err(broken)
}

/// The devices in HIP's order, or why there are none.
pub(super) fn judge(tool: &str, output: &Output, listed: Vec<Listed>, kfd: &Kfd) -> Answer {
    if listed.is_empty() {
        return Err(silence::of(output, kfd));
    }
    let mut found = order::in_hip_order(listed, kfd);
    if !output.status.success() {
        found.warnings.push(format!("{} although it lists GPUs", output.status));
    }
    found.warnings.iter_mut().for_each(|warning| *warning = format!("{tool}: {warning}"));
    Ok(found)
}

/// A name; `None` for the tool's placeholder or for a number in place of a name.
pub(super) fn name(value: &Value) -> Option<String> {
    let name = value.as_str()?.trim();
    let is_name = !name.is_empty() && name != "N/A" && !name.starts_with("0x");
    is_name.then(|| plain::masked(name))
}

/// A number, or a string that contains one.
pub(super) fn number(value: &Value) -> Option<u64> {
    let parse = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    value.as_u64().or_else(|| value.as_str().and_then(|text| parse(text.trim())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::Source;

    #[test]
    fn a_search_path_is_all_of_the_environment() {
        let settings = |path: &str| Settings { search_path: Some(path.into()), ..Settings::of(Source::Auto) };
        let limit = Duration::from_secs(60);
        let output = run("env", &[], &settings("/usr/bin:/bin"), limit).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "PATH=/usr/bin:/bin\n");
        let silence = run("env", &[], &settings("/nonexistent"), limit).expect_err("not there");
        assert!(matches!(silence, Silence::Absent(why) if why == "no env in PATH"));
    }

    #[test]
    #[rustfmt::skip] // a table
    fn text_where_a_value_should_be() {
        for (value, expected_name, expected_number) in [
            (json!("Navi 22"),   Some("Navi 22"), None),
            (json!(" a\tb "),    Some("a?b"),     None),
            (json!("42905"),     Some("42905"),   Some(42_905)),
            (json!("0x73df"),    None,            Some(0x73df)),
            (json!(42_905),      None,            Some(42_905)),
            (json!("N/A"),       None,            None),
            (json!(""),          None,            None),
            (json!("0x"),        None,            None),
            (json!(-1),          None,            None),
            (json!(null),        None,            None),
            (json!(["x"]),       None,            None),
        ] {
            assert_eq!((name(&value).as_deref(), number(&value)), (expected_name, expected_number), "{value}");
        }
    }
}
