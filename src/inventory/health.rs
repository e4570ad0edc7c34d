//! What makes a device sick, in the same words for every source.

use crate::device::Device;

/// The compute mode in which nobody may use a device.
const PROHIBITED: &str = "Prohibited";

/// The reason for a device without an identity.
pub(super) const NAMELESS: &str = "neither its UUID nor its PCI address is known";

/// `count`: the uncorrected memory errors since the driver was loaded.
pub(super) fn of_errors(count: Option<u64>) -> Option<String> {
    let count = count.filter(|count| *count > 0)?;
    Some(format!("uncorrected errors of its memory since the driver was loaded: {count}"))
}

pub(super) fn of_mode(mode: Option<&str>) -> Option<String> {
    mode.filter(|mode| *mode == PROHIBITED).map(|mode| format!("its compute mode is {mode}"))
}

/// A warning about a sick device, unless the administrator has made it so.
pub(super) fn warning(device: &Device) -> Option<String> {
    let why = device.health.reason()?;
    let is_set = of_mode(device.compute_mode.as_deref()).is_some_and(|of_mode| of_mode == why);
    (!is_set).then(|| format!("{} is sick: {why}", label(device)))
}

/// A warning about a divided device that is offered neither whole nor by instance.
pub(super) fn withheld_instances(device: &Device, why: &str) -> String {
    format!("{} is divided (MIG), and its instances are not granted: {why}", label(device))
}

/// A device in a sentence, with its address: the index changes when another card falls off the bus.
pub(super) fn label(device: &Device) -> String {
    let at = device.identity.pci.map(|pci| format!(" ({pci})")).unwrap_or_default();
    format!("device {}{at}", device.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Health, Identity};

    #[test]
    #[rustfmt::skip] // a table
    fn what_is_warned_of() {
        let lost = Health::Lost("it is gone".to_owned());
        let sick = |why: Option<String>| Health::Sick(why.unwrap());
        for (case, health, mode, pci, warning) in [
            ("sound",                    Health::Sound,            None,               "0000:1a:00.0", None),
            ("sick",                     sick(of_errors(Some(2))), Some("Default"),    "0000:1a:00.0", Some("device 3 (0000:1a:00.0) is sick: uncorrected errors of its memory since the driver was loaded: 2")),
            ("lost, nobody knows where", lost.clone(),             None,               "",             Some("device 3 is sick: it is gone")),
            ("set by the administrator", sick(of_mode(Some(PROHIBITED))), Some(PROHIBITED), "0000:1a:00.0", None),
            ("lost, whatever was set",   lost,                     Some(PROHIBITED),   "",             Some("device 3 is sick: it is gone")),
        ] {
            let identity = Identity { pci: pci.parse().ok(), ..Identity::default() };
            let device = Device { health, compute_mode: mode.map(str::to_owned), ..Device::new(3, identity) };
            assert_eq!(super::warning(&device).as_deref(), warning, "{case}");
        }
    }

    #[test]
    fn no_error_and_an_open_mode_are_no_sickness() {
        assert_eq!((of_errors(None), of_errors(Some(0))), (None, None));
        assert_eq!((of_mode(None), of_mode(Some("Exclusive_Process"))), (None, None));
    }
}
