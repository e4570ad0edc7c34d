//! The inventory that an administrator describes.

use std::path::Path;

use serde_json::{Value, json};

use crate::assert_shown;
use crate::device::Device;
use crate::host::Host;
use crate::inventory::{distinct, file};

/// What is read describes itself as the same.
pub(crate) fn devices(bytes: &[u8]) {
    let read = |bytes: &[u8]| file::parse(bytes, Path::new("devices.json"), &Host::new(Path::new("/")));
    match read(bytes) {
        Ok(devices) => {
            assert_eq!(distinct::check(&devices), Ok(()));
            let described: Vec<Value> = devices.iter().map(described).collect();
            let text = json!({ "devices": described }).to_string();
            assert_eq!(read(text.as_bytes()).ok(), Some(devices), "{text}");
        }
        Err(error) => assert!(!error.chain().is_empty()),
    }
}

fn described(device: &Device) -> Value {
    let Device { index, identity, name, memory_mib, nodes, health, .. } = device;
    let id = identity.id.as_deref().unwrap_or_default();
    [Some(id), name.as_deref(), health.reason()].into_iter().flatten().for_each(assert_shown);
    let pci = identity.pci.map(|pci| pci.to_string());
    json!({"id": id, "index": index, "name": name, "pci": pci, "nodes": nodes, "memory_mib": memory_mib,
           "unhealthy": health.reason()})
}
