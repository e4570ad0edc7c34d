//! The fields that `nvidia-smi` is asked for. Every version knows the first ones. A version that does not know one of the
//! others refuses the whole query and names the field; it is then asked again without it.

use crate::inventory::nvidia_smi::card::{Card, is_non_value, number};
use crate::inventory::text::version;
use crate::plain;

/// Known to every version.
const ALWAYS: &str = "index,uuid,pci.bus_id,name,memory.total";
/// The MIG modes of a card that is not divided.
const UNDIVIDED: [&str; 4] = ["Disabled", "[N/A]", "N/A", "[Not Supported]"];

/// An optional field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    MemoryUsed,
    /// Not shown. It reveals that a card is lost or needs a reset where the other values are cached.
    PerformanceState,
    ComputeMode,
    UncorrectedErrors,
    DriverVersion,
    MigMode,
}

impl Extra {
    pub(super) const ALL: [Extra; 6] = [
        Extra::MemoryUsed,
        Extra::PerformanceState,
        Extra::ComputeMode,
        Extra::UncorrectedErrors,
        Extra::DriverVersion,
        Extra::MigMode,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Extra::MemoryUsed => "memory.used",
            Extra::PerformanceState => "pstate",
            Extra::ComputeMode => "compute_mode",
            Extra::UncorrectedErrors => "ecc.errors.uncorrected.volatile.total",
            Extra::DriverVersion => "driver_version",
            Extra::MigMode => "mig.mode.current",
        }
    }

    /// `None` if `text` cannot be a value of this field: then the row is not one of ours.
    pub(super) fn read(self, text: &str, card: &mut Card) -> Option<()> {
        let word = Some(text).filter(|text| !is_non_value(text));
        match self {
            Extra::MemoryUsed => card.device.memory_used_mib = number(text)?,
            Extra::PerformanceState => {}
            Extra::ComputeMode => card.device.compute_mode = word.map(mode),
            Extra::UncorrectedErrors => card.device.uncorrected_errors = number(text)?,
            Extra::DriverVersion => {
                card.driver_version = word.map_or(Some(None), |word| version(word).map(Some))?
            }
            Extra::MigMode => card.is_divided = divided(text)?,
        }
        Some(())
    }
}

fn mode(word: &str) -> String {
    plain::masked(word)
}

/// `Some(None)` if it is not known.
fn divided(text: &str) -> Option<Option<bool>> {
    match text {
        "Enabled" => Some(Some(true)),
        text if UNDIVIDED.contains(&text) => Some(Some(false)),
        text => is_non_value(text).then_some(None),
    }
}

pub(super) fn query(extras: &[Extra]) -> [String; 2] {
    let names = std::iter::once(ALWAYS).chain(extras.iter().map(|extra| extra.name()));
    let names = names.collect::<Vec<_>>().join(",");
    [format!("--query-gpu={names}"), "--format=csv,noheader,nounits".to_owned()]
}

/// The fields that are left after a refusal: all but the one that it names, or none if it names none.
pub(super) fn without_refused(asked: &[Extra], said: &str) -> Vec<Extra> {
    let is_named = |extra: &Extra| said.contains(&format!("\"{}\"", extra.name()));
    let left: Vec<Extra> = asked.iter().copied().filter(|extra| !is_named(extra)).collect();
    if left.len() < asked.len() { left } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_without_extras_is_what_every_version_knows() {
        assert_eq!(
            query(&[]),
            ["--query-gpu=index,uuid,pci.bus_id,name,memory.total", "--format=csv,noheader,nounits"]
        );
        assert!(query(&Extra::ALL)[0].ends_with(",memory.total,memory.used,pstate,compute_mode,ecc.errors.uncorrected.volatile.total,driver_version,mig.mode.current"));
    }

    #[test]
    fn the_field_that_is_refused_is_left_out() {
        let said = "Field \"mig.mode.current\" is not a valid field to query.\n\n";
        assert_eq!(without_refused(&Extra::ALL, said), Extra::ALL[..5]);
        assert_eq!(without_refused(&Extra::ALL[..5], said), [], "it has been left out before");
        assert_eq!(without_refused(&Extra::ALL, "Option is not recognized.\n"), []);
        let two = "Field \"pstate\" is not valid\nField \"memory.used\" is not valid\n";
        assert_eq!(without_refused(&Extra::ALL, two), Extra::ALL[2..]);
    }
}
