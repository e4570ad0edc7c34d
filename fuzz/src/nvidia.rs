//! What NVIDIA's tool, library and kernel driver say.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::device::{Device, Identity};
use crate::host::child::Output;
use crate::inventory::distinct;
use crate::inventory::nvidia_smi::fields::{self, Extra};
use crate::inventory::nvidia_smi::{details, listing, mig, persistence, rows, status};
use crate::inventory::nvml;
use crate::inventory::procfs::information;
use crate::{assert_shown, lossy};

/// The first byte says how many of the further fields were asked for, and the exit status.
pub(crate) fn csv(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let text = lossy(bytes);
    let extras = &Extra::ALL[..usize::from(choice % 7)];
    let _ = fields::without_refused(extras, &text);
    match rows::parse(&text, extras) {
        Ok(report) => {
            let found = report.found();
            are_shown(&found.devices);
            found.warnings.iter().for_each(|warning| assert_shown(warning));
            assert!(found.devices.is_sorted_by_key(|device| device.index));
            let _ = distinct::check(&found.devices);
        }
        Err(problem) => assert_shown(&problem),
    }
    let codes = [0, 2, 6, 14, 15, 255, 1, 9];
    let code = codes[usize::from(choice / 7) % codes.len()];
    if let Err(silence) = status::judge(&output(code, bytes), extras) {
        assert_shown(&silence.to_string());
    }
}

fn output(code: i32, stdout: &[u8]) -> Output {
    Output { status: ExitStatus::from_raw(code << 8), stdout: stdout.to_vec(), stderr: stdout.to_vec() }
}

fn are_shown(devices: &[Device]) {
    for device in devices {
        let Device { identity: Identity { uuid, id, .. }, name, compute_mode, health, .. } = device;
        [uuid, id, name, compute_mode].into_iter().flatten().for_each(|text| assert_shown(text));
        health.reason().into_iter().for_each(assert_shown);
        for instance in device.instances.iter().flatten() {
            [&instance.uuid, &instance.profile].into_iter().flatten().for_each(|text| assert_shown(text));
        }
    }
}

pub(crate) fn list(bytes: &[u8]) {
    let text = lossy(bytes);
    if let Some(modes) = persistence::parse(&text) {
        let word = |is_on: &bool| if *is_on { "Enabled" } else { "Disabled" };
        let text: String = modes.iter().map(|(index, is_on)| format!("{index}, {}\n", word(is_on))).collect();
        assert_eq!(persistence::parse(&text), Some(modes));
    }
    let Ok(read) = listing::parse(&text) else { return };
    let instance = |it: &listing::Listed| {
        let _ = it.place();
        assert_shown(&it.profile);
        format!("  MIG {} Device {}: (UUID: {})\n", it.profile, it.number, it.uuid)
    };
    let gpu = |(uuid, instances): &(String, Vec<listing::Listed>)| {
        format!("GPU 0: x (UUID: {uuid})\n") + &instances.iter().map(instance).collect::<String>()
    };
    let text: String = read.iter().map(gpu).collect();
    assert_eq!(listing::parse(&text), Ok(read), "{text}");
}

/// And the instances of a card, which are listed by another call.
pub(crate) fn xml(bytes: &[u8]) {
    let read = match details::parse(&lossy(bytes)) {
        Ok(read) => read,
        Err(problem) => return assert_shown(&problem),
    };
    let text: String = read.iter().map(gpu).collect();
    let text = format!("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>{text}</nvidia_smi_log>");
    assert_eq!(details::parse(&text), Ok(read.clone()), "{text}");
    for details in &read {
        let listed = |place: &details::MigDevice| listing::Listed {
            number: place.number,
            uuid: format!("MIG-{}", place.number),
            profile: "1g".to_owned(),
        };
        let listed: Vec<listing::Listed> = details.instances.iter().rev().map(listed).collect();
        if let Ok(instances) = mig::join(&listed, &details.instances) {
            assert_eq!(instances.len(), listed.len());
        }
    }
}

fn gpu(details: &details::Details) -> String {
    let optional = |tag: &str, value: Option<String>| {
        value.map(|value| format!("<{tag}>{value}</{tag}>")).unwrap_or_default()
    };
    let place = |place: &details::MigDevice| {
        let details::MigDevice { number, gpu_instance, compute_instance, memory_mib } = place;
        let memory = optional("total", memory_mib.map(|mib| format!("{mib} MiB")));
        format!(
            "<mig_device><index>{number}</index><gpu_instance_id>{gpu_instance}</gpu_instance_id>\
             <compute_instance_id>{compute_instance}</compute_instance_id>\
             <fb_memory_usage>{memory}</fb_memory_usage></mig_device>"
        )
    };
    let id = details.identity.pci.map(|pci| format!(" id=\"{pci}\"")).unwrap_or_default();
    let uuid = optional("uuid", details.identity.uuid.clone());
    let minor = optional("minor_number", details.minor.map(|minor| minor.to_string()));
    let places: String = details.instances.iter().map(place).collect();
    format!("<gpu{id}>{uuid}{minor}<mig_devices>{places}</mig_devices></gpu>")
}

/// The line of the child, and the kernel driver's own files.
pub(crate) fn nvml(bytes: &[u8]) {
    let text = lossy(bytes);
    if let Some(information) = information::parse(&text) {
        [information.model, information.uuid].into_iter().flatten().for_each(|text| assert_shown(&text));
    }
    information::version(&text).iter().for_each(|version| assert_shown(version));
    match nvml::report::read(&output(0, bytes), || true) {
        Ok(report) => {
            let addresses = nvml::card::addresses(&report.cards, Vec::new);
            assert_eq!(addresses.len(), report.cards.len());
            let devices = report.cards.iter().zip(addresses).map(|(card, pci)| card.device(pci));
            are_shown(&devices.collect::<Vec<_>>());
        }
        Err(silence) => assert_shown(&silence.to_string()),
    }
}
