//! What it means when one of AMD's tools lists no GPU.
//!
//! They exit with 0 and print nothing when they see no driver, when there is no GPU, and when they fail halfway. KFD
//! tells which of the three it is: "there is none" needs its agreement (`without_a_gpu`).

use crate::host::child::Output;
use crate::inventory::amd::{BY_HAND, Kfd, json};
use crate::inventory::answer::Silence;
use crate::inventory::text::quote;

/// Both tools say this about the driver; the words around it have changed over the years.
const NO_DRIVER: &str = "not found in modules";
/// Printed, with various exit statuses, when there is nothing to list.
const NONE: [&str; 3] = ["No JSON data to report", "No DRM devices available", "No AMD GPUs specified"];
const BUILT_IN: &str = "use `--source sysfs`: AMD's tools do not see a driver that is built into the kernel";

pub(super) fn of(output: &Output, kfd: &Kfd) -> Silence {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let says = |text: &str| stdout.lines().chain(stderr.lines()).find(|line| line.contains(text)).map(quote);
    if let Some(line) = says(NO_DRIVER) {
        return without_driver(&line, kfd);
    }
    let first = json::first_line([&*stdout, &*stderr]);
    let says_none = NONE.iter().any(|text| says(text).is_some());
    // What it prints besides its answer goes to the other stream.
    let is_silent = output.status.success() && (stdout.trim().is_empty() || is_empty_json(&stdout));
    if says_none || is_silent {
        return none(first.as_deref(), kfd);
    }
    let said = first.map(|line| format!(" (`{line}`)")).unwrap_or_default();
    Silence::Broken {
        why: anyhow::anyhow!("{} and no GPU in what it printed{said}", output.status),
        cure: BY_HAND,
    }
}

fn is_empty_json(stdout: &str) -> bool {
    json::values(stdout).is_ok_and(|values| !values.is_empty())
}

/// `line`: the tool's words for it.
fn without_driver(line: &str, kfd: &Kfd) -> Silence {
    let denied = |why: String| Silence::Broken { why: anyhow::Error::msg(why), cure: BUILT_IN };
    match kfd {
        Ok(nodes) => denied(format!("it sees no driver (`{line}`), and KFD lists {}", count(nodes.len()))),
        Err(Silence::Broken { why, .. }) => denied(format!("it sees no driver (`{line}`), and KFD: {why:#}")),
        Err(Silence::Nothing { why, .. }) => Silence::Nothing { why: why.clone(), sure: true },
        Err(Silence::Absent(_) | Silence::Late { .. }) => {
            Silence::Absent(format!("the driver amdgpu is not loaded (`{line}`)"))
        }
    }
}

fn none(line: Option<&str>, kfd: &Kfd) -> Silence {
    let said = line.map_or("it printed nothing".to_owned(), |line| format!("it lists no GPU (`{line}`)"));
    let denied = |why: String| Silence::Broken { why: anyhow::Error::msg(why), cure: BY_HAND };
    match kfd {
        Ok(nodes) => denied(format!("{said}, and KFD lists {}", count(nodes.len()))),
        Err(Silence::Broken { why, .. }) => denied(format!("{said}, and KFD: {why:#}")),
        Err(Silence::Nothing { .. } | Silence::Absent(_) | Silence::Late { .. }) => {
            Silence::Nothing { why: format!("{said}, and neither does KFD"), sure: true }
        }
    }
}

fn count(gpus: usize) -> String {
    if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::device::{Device, Identity};
    use crate::inventory::sysfs::Node;

    const DRIVER: &str =
        "cat: initstate: No such file\nERROR:root:Driver not initialized (amdgpu not found in modules)\n";
    const DRIVERS: &str = "ERROR:root:Drivers not loaded (amdgpu, amd_hsmp drivers not found in modules)\n";

    fn kfd(says: &str) -> Kfd {
        let device = Device::new(0, Identity::default());
        match says {
            "lists" => Ok(vec![Node { number: 1, gpu_id: None, device }]),
            "none" => Err(Silence::Nothing { why: "processors only".to_owned(), sure: true }),
            "absent" => Err(Silence::Absent("no KFD".to_owned())),
            _ => Err(Silence::Broken { why: anyhow::anyhow!("unreadable"), cure: "" }),
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn without_a_gpu() {
        for (case, code, stdout, stderr, says, kind, why) in [
            ("no driver",                  0,   "",   DRIVER,  "absent", "absent",  "the driver amdgpu is not loaded (`ERROR:root:Driver not initialized"),
            ("no driver, by amd-smi",      255, "",   DRIVERS, "absent", "absent",  "the driver amdgpu is not loaded (`ERROR:root:Drivers not loaded"),
            ("no driver, on stdout",       255, DRIVERS, "",   "absent", "absent",  "the driver amdgpu is not loaded"),
            ("a driver that is built in",  0,   "",   DRIVER,  "lists",  "broken",  "it sees no driver (`ERROR:root:Driver not initialized (amdgpu not found in modules)`), and KFD lists 1 GPU"),
            ("the same, broken",           0,   "",   DRIVER,  "broken", "broken",  "and KFD: unreadable"),
            ("the same, without a GPU",    0,   "",   DRIVER,  "none",   "nothing", "processors only"),
            ("nothing at all",             0,   "",   "",      "absent", "nothing", "it printed nothing, and neither does KFD"),
            ("an empty line",              0,   "\n", "",      "none",   "nothing", "it printed nothing"),
            ("nothing, and KFD has one",   0,   "",   "",      "lists",  "broken",  "it printed nothing, and KFD lists 1 GPU"),
            ("nothing, and KFD is broken", 0,   "",   "",      "broken", "broken",  "it printed nothing, and KFD: unreadable"),
            ("nothing, with a failure",    1,   "",   "",      "absent", "broken",  "exit status: 1 and no GPU in what it printed"),
            ("an empty list",              0,   "[]\n", "",    "none",   "nothing", "it lists no GPU (`[]`)"),
            ("an empty object",            0,   "{\"system\": {}}", "", "lists", "broken", "it lists no GPU (`{\"system\": {}}`), and KFD lists 1 GPU"),
            ("nothing to report",          2,   "",   "WARNING: No JSON data to report\n", "none",  "nothing", "it lists no GPU (`WARNING: No JSON data to report`)"),
            ("nothing to report of one",   0,   "",   "WARNING: No JSON data to report\n", "lists", "broken",  "(`WARNING: No JSON data to report`), and KFD lists 1 GPU"),
            ("no DRM device",              1,   "ERROR: No DRM devices available. Exiting\n", "", "absent", "nothing", "it lists no GPU"),
            ("no GPU given",               0,   "WARNING: No AMD GPUs specified\n", "",           "none",   "nothing", "it lists no GPU"),
            ("no library",                 0,   "Unable to load the rocm_smi library.\n", "",     "absent", "broken",  "exit status: 0 and no GPU in what it printed (`Unable to load the rocm_smi library.`)"),
            ("an exception",               0,   "Exception caught: map::at\n", "",                "lists",  "broken",  "(`Exception caught: map::at`)"),
            ("a failure",                  1,   "",   "\nTraceback\n",                            "absent", "broken",  "exit status: 1 and no GPU in what it printed (`Traceback`)"),
        ] {
            let output = Output { status: ExitStatus::from_raw(code << 8), stdout: stdout.into(), stderr: stderr.into() };
            let silence = of(&output, &kfd(says));
            let found = match &silence {
                Silence::Absent(_) => "absent",
                Silence::Nothing { sure: true, .. } => "nothing",
                Silence::Broken { .. } => "broken",
                other => panic!("{case}: {other:?}"),
            };
            assert_eq!(found, kind, "{case}: {silence}");
            assert!(silence.to_string().contains(why), "{case}: {silence}");
        }
    }
}
