//! What `nvidia-smi -L` prints: a line per GPU, and below it, indented, a line per MIG instance.
//!
//! ```text
//! GPU 5: NVIDIA A100-SXM4-40GB (UUID: GPU-00000005-...)
//!   MIG 1g.5gb      Device  0: (UUID: MIG-00000005-...)
//! ```
//!
//! No other call reports the UUID of an instance. Up to R460 it is `MIG-GPU-.../GPU INSTANCE/COMPUTE INSTANCE`.

use crate::device;
use crate::plain;

/// An instance, by its number on its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) number: u32,
    pub(super) uuid: String,
    pub(super) profile: String,
}

/// The instances of each GPU, by the GPU's UUID. Unknown lines are skipped: a missing instance is noticed when the list
/// is joined with the details.
pub(super) fn parse(stdout: &str) -> Result<Vec<(String, Vec<Listed>)>, String> {
    let mut gpus: Vec<(String, Vec<Listed>)> = Vec::new();
    for line in stdout.lines().map(str::trim) {
        if line.starts_with("GPU ") {
            gpus.extend(uuid(line).map(|uuid| (uuid, Vec::new())));
        } else if let Some((_, instances)) = gpus.last_mut() {
            instances.extend(instance(line));
        }
    }
    if gpus.is_empty() { Err("it lists no GPU".to_owned()) } else { Ok(gpus) }
}

/// `MIG PROFILE Device NUMBER: (UUID: ...)`, in columns since R470.
fn instance(line: &str) -> Option<Listed> {
    let (profile, rest) = line.strip_prefix("MIG ")?.split_once(" Device ")?;
    let number = rest.split_once(':')?.0.trim().parse().ok()?;
    let profile = plain::masked(profile.trim());
    Some(Listed { number, uuid: uuid(line)?, profile })
}

fn uuid(line: &str) -> Option<String> {
    let (_, uuid) = line.strip_suffix(')')?.rsplit_once("(UUID: ")?;
    device::uuid(uuid)
}

impl Listed {
    /// The GPU instance and the compute instance, where the UUID has them.
    pub(super) fn place(&self) -> Option<(u32, u32)> {
        let (rest, compute) = self.uuid.strip_prefix("MIG-GPU-")?.rsplit_once('/')?;
        let (_, gpu) = rest.rsplit_once('/')?;
        Some((gpu.parse().ok()?, compute.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn instances_of_every_version() {
        for (case, line, number, uuid, profile, place) in [
            ("R460",          "  MIG 3g.20gb Device 1: (UUID: MIG-GPU-a-1/2/0)",  1, "MIG-GPU-a-1/2/0", "3g.20gb",    Some((2, 0))),
            ("R470",          "  MIG 1g.5gb      Device  0: (UUID: MIG-b-0)",     0, "MIG-b-0",         "1g.5gb",     None),
            ("two digits",    "    MIG 1g.10gb     Device 12: (UUID: MIG-b-1)",  12, "MIG-b-1",         "1g.10gb",    None),
            ("media engines", "  MIG 1g.10gb+me  Device  3: (UUID: MIG-b-2)",     3, "MIG-b-2",         "1g.10gb+me", None),
            ("a part",        "  MIG 2c.7g.40gb  Device  0: (UUID: MIG-b-3)",     0, "MIG-b-3",         "2c.7g.40gb", None),
        ] {
            let listed = Listed { number, uuid: uuid.to_owned(), profile: profile.to_owned() };
            assert_eq!(listed.place(), place, "{case}");
            let gpus = parse(&format!("GPU 0: NVIDIA A100 (UUID: GPU-a-1)\n{line}\n")).unwrap();
            assert_eq!(gpus, [("GPU-a-1".to_owned(), vec![listed])], "{case}");
        }
    }

    #[test]
    fn an_instance_belongs_to_the_gpu_above_it() {
        let gpus = parse(
            "Unable to determine the device handle for GPU 0000:02:00.0: Unknown Error\n\
             GPU 0: A (B) (UUID: GPU-0)\nGPU 1: A (UUID: GPU-1)\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\n\
             GPU 2: A (UUID: GPU-2)\n",
        )
        .unwrap();
        let summary: Vec<_> = gpus.iter().map(|(uuid, instances)| (uuid.as_str(), instances.len())).collect();
        assert_eq!(summary, [("GPU-0", 0), ("GPU-1", 1), ("GPU-2", 0)]);
    }

    #[test]
    fn a_sentence_is_no_list() {
        assert_eq!(parse("No devices were found\n").unwrap_err(), "it lists no GPU");
    }

    #[test]
    fn what_is_no_instance_is_passed_over() {
        for line in [
            "MIG 1g.5gb Device 0:",
            "MIG 1g.5gb Device x: (UUID: MIG-1)",
            "MIG 1g.5gb Device 0: (UUID: [Unknown Error])",
            "MIG 1g.5gb (UUID: MIG-1)",
            "No MIG devices found",
        ] {
            assert_eq!(
                parse(&format!("GPU 0: A (UUID: GPU-0)\n  {line}\n")).unwrap(),
                [("GPU-0".to_owned(), vec![])],
                "{line}"
            );
        }
    }
}
