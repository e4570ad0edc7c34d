//! One card as the child reports it, and what that means: its device, its health, and warnings.

use serde::Deserialize;

use crate::device::{self, Device, Health, Identity, Instance, PciAddress, Use};
use crate::inventory::health;
use crate::inventory::nvml::trouble::Trouble;
use crate::plain;

const MIB: u64 = 1 << 20;

/// What NVML does not report is `None`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Card {
    index: u32,
    uuid: Option<String>,
    pci: Option<String>,
    name: Option<String>,
    pub(super) minor: Option<u32>,
    memory: Option<Memory>,
    processes: Option<Vec<Process>>,
    compute_mode: Option<String>,
    persistence_mode: Option<bool>,
    uncorrected_errors: Option<u64>,
    remap_failed: Option<u64>,
    remap_pending: Option<u64>,
    recovery_action: Option<u64>,
    /// `None` if it is not known, which is not "no".
    is_divided: Option<bool>,
    /// `None` if there are none, or if they could not be listed.
    instances: Option<Vec<Part>>,
    /// Why it cannot be used.
    trouble: Option<Trouble>,
}

/// In bytes.
#[derive(Clone, Debug, Deserialize)]
struct Memory {
    total: u64,
    used: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Process {
    pid: u32,
    /// In bytes.
    memory: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Part {
    uuid: Option<String>,
    name: Option<String>,
    gpu_instance: Option<u32>,
    compute_instance: Option<u32>,
    memory_mib: Option<u64>,
}

/// The address of each card. NVML does not report that of a card that it cannot reach. The kernel's list, which is in the
/// same order, gives it if as many addresses are left over there as are missing here.
pub(super) fn addresses(
    cards: &[Card],
    of_kernel: impl FnOnce() -> Vec<PciAddress>,
) -> Vec<Option<PciAddress>> {
    let address = |card: &Card| card.pci.as_ref().and_then(|pci| pci.parse().ok());
    let known: Vec<Option<PciAddress>> = cards.iter().map(address).collect();
    let missing = known.iter().filter(|pci| pci.is_none()).count();
    if missing == 0 {
        return known;
    }
    let mut left = of_kernel();
    left.retain(|pci| !known.contains(&Some(*pci)));
    let mut left = left.into_iter();
    if left.len() == missing {
        known.into_iter().map(|pci| pci.or_else(|| left.next())).collect()
    } else {
        known
    }
}

impl Card {
    pub(super) fn tells_instances(&self) -> bool {
        self.is_divided.is_some()
    }

    pub(super) fn device(&self, pci: Option<PciAddress>) -> Device {
        let identity = Identity { uuid: self.uuid.as_deref().and_then(device::uuid), pci, id: None };
        Device {
            name: self.name.as_deref().map(plain::masked),
            memory_mib: self.memory.as_ref().map(|memory| memory.total / MIB),
            minor: self.minor,
            health: self.health(&identity),
            instances: self.is_divided.filter(|is_divided| *is_divided).map(|_| self.instances()),
            memory_used_mib: self.memory.as_ref().map(|memory| memory.used / MIB),
            processes: self.processes.as_ref().map(|processes| processes.iter().map(Process::uses).collect()),
            compute_mode: self.compute_mode.clone(),
            persistence_mode: self.persistence_mode,
            uncorrected_errors: self.uncorrected_errors,
            ..Device::new(self.index, identity)
        }
    }

    /// Its instances, without those that have no UUID: they cannot be named.
    fn instances(&self) -> Vec<Instance> {
        let parts = self.instances.iter().flatten();
        parts.map(Part::instance).filter(|instance| instance.uuid.is_some()).collect()
    }

    fn health(&self, identity: &Identity) -> Health {
        // A card without an identity cannot be recorded.
        let is_lost = identity.is_empty() || self.trouble.as_ref().is_some_and(Trouble::is_lost);
        match self.sickness(identity) {
            None => Health::Sound,
            Some(why) if is_lost => Health::Lost(why),
            Some(why) => Health::Sick(why),
        }
    }

    /// The first reason why it is sick, if it is.
    fn sickness(&self, identity: &Identity) -> Option<String> {
        if let Some(trouble) = &self.trouble {
            return Some(trouble.of_card());
        }
        if identity.is_empty() {
            return Some(health::NAMELESS.to_owned());
        }
        if self.remap_failed.is_some_and(|failed| failed > 0) {
            return Some("a bad row of its memory could not be replaced".to_owned());
        }
        let of_driver = || self.recovery_action.filter(|action| *action > 0).map(recovery);
        let of_errors = health::of_errors(self.uncorrected_errors).or_else(of_driver);
        of_errors.or_else(|| health::of_mode(self.compute_mode.as_deref()))
    }

    /// Warnings about it.
    pub(super) fn warnings(&self, device: &Device) -> Vec<String> {
        let mut warnings = Vec::new();
        // Until then the card can be used like any other (NVIDIA's "GPU Memory Error Management").
        if self.remap_pending.is_some_and(|pending| pending > 0) {
            warnings.push("replaces a bad row of its memory at its next reset".to_owned());
        }
        if let Some(instances) = &device.instances {
            let all = self.instances.as_ref().map(Vec::len);
            if all != Some(instances.len()) {
                warnings.push("has MIG instances that NVML does not name; they are not granted".to_owned());
            }
        }
        let of_device = |what| format!("{} {what}", health::label(device));
        let warnings = health::warning(device).into_iter().chain(warnings.into_iter().map(of_device));
        warnings.map(|warning| format!("nvml: {warning}")).collect()
    }
}

/// The meaning of `nvmlDeviceGpuRecoveryAction_t`. Whatever the action is, the card must not get new work before it.
fn recovery(action: u64) -> String {
    let what = match action {
        1 => "reset it",
        2 | 7 => "restart the host",
        3 => "end the traffic with its peers",
        4 => "end its processes and reset it",
        5 => "mend the IMEX domain",
        6 => "reset its PCIe bus",
        _ => return format!("the driver wants recovery action {action}"),
    };
    format!("the driver wants you to {what}")
}

impl Process {
    fn uses(&self) -> Use {
        Use { pid: self.pid, memory_mib: self.memory.map(|bytes| bytes / MIB) }
    }
}

impl Part {
    /// The instance. Its name has the form `MODEL MIG PROFILE`.
    fn instance(&self) -> Instance {
        let profile = self.name.as_ref().and_then(|name| name.rsplit_once("MIG "));
        Instance {
            uuid: self.uuid.as_deref().and_then(device::uuid),
            profile: profile.map(|(_, profile)| plain::masked(profile.trim())),
            gpu_instance: self.gpu_instance,
            compute_instance: self.compute_instance,
            memory_mib: self.memory_mib,
            slots: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card in slot 1a of which nothing else is known than `fields`.
    fn card(fields: &str) -> Card {
        serde_json::from_str(&format!(r#"{{"index": 0, "pci": "00000000:1A:00.0"{fields}}}"#)).unwrap()
    }

    fn device(fields: &str) -> Device {
        card(fields).device("0000:1a:00.0".parse().ok())
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_makes_a_card_sick() {
        for (fields, reason) in [
            (r#""#,                                                       ""),
            (r#", "remap_pending": 1"#,                                   ""),
            (r#", "remap_failed": 0, "uncorrected_errors": 0, "recovery_action": 0, "trouble": null"#, ""),
            (r#", "compute_mode": "Exclusive_Process""#,                  ""),
            (r#", "trouble": {"code": 15, "text": "its words"}"#,         "it is lost: it has fallen off the bus, or cannot be reached"),
            (r#", "trouble": {"code": 16, "text": "its words"}"#,         "it needs a reset before it can be used"),
            (r#", "trouble": {"code": 4, "text": "its words"}"#,          "no permission to use it"),
            (r#", "trouble": {"code": 999, "text": "its\nwords"}"#,       "its\\nwords"),
            (r#", "remap_failed": 1"#,                                    "a bad row of its memory could not be replaced"),
            (r#", "uncorrected_errors": 12"#,                             "uncorrected errors of its memory since the driver was loaded: 12"),
            (r#", "recovery_action": 4"#,                                 "the driver wants you to end its processes and reset it"),
            (r#", "recovery_action": 99"#,                                "the driver wants recovery action 99"),
            (r#", "compute_mode": "Prohibited""#,                         "its compute mode is Prohibited"),
        ] {
            let health = match reason.to_owned() {
                reason if reason.is_empty() => Health::Sound,
                reason if reason.starts_with("it is lost: ") => Health::Lost(reason),
                reason => Health::Sick(reason),
            };
            assert_eq!(device(fields).health, health, "{fields}");
        }
        for (fields, reason) in [
            ("",                                                          "neither its UUID nor its PCI address is known"),
            (r#", "trouble": {"code": 4, "text": "its words"}"#,          "no permission to use it"),
        ] {
            assert_eq!(card(fields).device(None).health, Health::Lost(reason.to_owned()));
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_is_warned_of() {
        for (fields, warnings) in [
            ("",                                                   vec![]),
            (r#", "compute_mode": "Prohibited""#,                  vec![]),
            (r#", "uncorrected_errors": 1"#,                       vec!["is sick: uncorrected errors of its memory since the driver was loaded: 1"]),
            (r#", "trouble": {"code": 15, "text": "its words"}"#,  vec!["is sick: it is lost: it has fallen off the bus, or cannot be reached"]),
            (r#", "remap_pending": 1"#,                            vec!["replaces a bad row of its memory at its next reset"]),
            (r#", "is_divided": true, "instances": []"#,           vec![]),
            (r#", "is_divided": true"#,                            vec!["has MIG instances that NVML does not name; they are not granted"]),
            (r#", "is_divided": true, "instances": [{"uuid": "MIG-1"}, {}]"#, vec!["has MIG instances that NVML does not name; they are not granted"]),
        ] {
            let expected: Vec<String> = warnings.iter().map(|what| format!("nvml: device 0 (0000:1a:00.0) {what}")).collect();
            assert_eq!(card(fields).warnings(&device(fields)), expected, "{fields}");
        }
    }

    #[test]
    fn what_is_told_is_kept() {
        let device = device(
            r#", "uuid": "GPU-1", "name": "A\tB", "minor": 3, "memory": {"total": 42949672960, "used": 1048577},
               "processes": [{"pid": 7, "memory": 2097152}, {"pid": 8, "memory": null}], "uncorrected_errors": 0"#,
        );
        assert_eq!((device.identity.uuid.as_deref(), device.name.as_deref()), (Some("GPU-1"), Some("A?B")));
        assert_eq!((device.memory_mib, device.memory_used_mib), (Some(40960), Some(1)));
        let uses = [Use { pid: 7, memory_mib: Some(2) }, Use { pid: 8, memory_mib: None }];
        assert_eq!((device.processes, device.uncorrected_errors), (Some(uses.to_vec()), Some(0)));
        assert_eq!((device.minor, device.instances), (Some(3), None));
    }

    #[test]
    fn a_divided_card_is_offered_as_its_instances() {
        let told =
            r#"{"uuid": "MIG-1", "name": "A100 MIG 1c.3g.20gb", "gpu_instance": 2, "compute_instance": 0}"#;
        let instances = device(&format!(r#", "is_divided": true, "instances": [{told}]"#)).instances.unwrap();
        let (uuid, profile) = (Some("MIG-1".to_owned()), Some("1c.3g.20gb".to_owned()));
        let (gpu_instance, compute_instance) = (Some(2), Some(0));
        assert_eq!(
            instances,
            [Instance { uuid, profile, gpu_instance, compute_instance, memory_mib: None, slots: None }]
        );
        for fields in [r#", "is_divided": true"#, r#", "is_divided": true, "instances": [{"uuid": "[N/A]"}]"#]
        {
            assert_eq!(device(fields).instances, Some(Vec::new()), "{fields}: never whole");
        }
        assert_eq!(device(r#", "is_divided": false"#).instances, None);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn the_kernel_knows_where_a_card_is_that_nvml_cannot_reach() {
        let (a, b, c) = ("0000:0a:00.0", "0000:0b:00.0", "0000:0c:00.0");
        for (case, told, listed, expected) in [
            ("all are told",         [a, b],   vec![],         [a, b]),
            ("the last one",         [a, ""],  vec![a, b],     [a, b]),
            ("the first one",        ["", b],  vec![a, b],     [a, b]),
            ("both",                 ["", ""], vec![a, b],     [a, b]),
            ("none is listed",       ["", b],  vec![],         ["", b]),
            ("it is not listed",     ["", b],  vec![b],        ["", b]),
            ("it may be either",     ["", b],  vec![a, b, c],  ["", b]),
        ] {
            let told: Vec<Card> = told.iter().map(|pci| Card { pci: Some((*pci).to_owned()), ..Card::default() }).collect();
            let listed: Vec<PciAddress> = listed.iter().map(|pci| pci.parse().unwrap()).collect();
            let found: Vec<String> = addresses(&told, || listed).iter().map(|pci| pci.map(|pci| pci.to_string()).unwrap_or_default()).collect();
            assert_eq!(found, expected, "{case}");
        }
    }
}
