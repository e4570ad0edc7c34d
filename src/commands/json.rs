//! The JSON that people's scripts read. Its version is 1, its names are those of the documentation, and
//! it changes only by addition.

use serde_json::{Map, Value, json};
use sysinfo::System;

use super::isolation;
use crate::assignment::{Assignment, Owner, Standing};
use crate::device::{Device, Health, Identity, Instance, Inventory, Unit, Use};
use crate::host::Host;
use crate::host::account::Accounts;
use crate::notes::Notes;
use crate::plain;

const VERSION: u32 = 1;

/// What `status`, `devices` and `doctor` print: `fields`, and what all of them say beside.
pub(super) fn document(
    host: &Host,
    inventory: Option<&Inventory>,
    fields: Map<String, Value>,
    notes: &Notes,
) -> String {
    let mut document = Map::new();
    document.insert("version".to_owned(), json!(VERSION));
    document.insert("host".to_owned(), describe(host, inventory));
    document.extend(fields);
    document.insert("warnings".to_owned(), json!(notes.warnings));
    escaped(&format!("{:#}\n", Value::Object(document)))
}

/// As JSON has it for every character: those that serde leaves as they are may control a terminal, too.
fn escaped(json: &str) -> String {
    let is_unsafe = |char: char| char != '\n' && plain::is_unsafe(char);
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find(is_unsafe) {
        let (before, from) = rest.split_at(at);
        let mut chars = from.chars();
        let code = chars.next().map_or(0, u32::from);
        text.push_str(before);
        text.push_str(&format!("\\u{code:04x}"));
        rest = chars.as_str();
    }
    text + rest
}

/// Name and kernel are those of the machine that this runs on, also below another host root.
fn describe(host: &Host, inventory: Option<&Inventory>) -> Value {
    json!({
        "name": System::host_name().ok(),
        "kernel": System::kernel_version().ok(),
        "boot_id": host.boot_id(),
        "pid_namespace": host.pid_namespace(),
        "driver_version": inventory.and_then(|inventory| inventory.driver_version.as_ref()),
    })
}

pub(super) fn device(device: &Device, units: Vec<Value>) -> Value {
    let Device { index, identity, name, memory_mib, minor, nodes, health, .. } = device;
    let is_sound = *health == Health::Sound;
    let mut value = json!({
        "index": index,
        "name": name,
        "memory_mib": memory_mib,
        "minor": minor,
        "nodes": nodes.iter().map(|node| node.to_string_lossy()).collect::<Vec<_>>(),
        "health": if is_sound { "sound" } else { "sick" },
        "reason": health.reason(),
        "memory_used_mib": device.memory_used_mib,
        "processes": device.processes.as_ref().map(|uses| uses.iter().map(process).collect::<Vec<_>>()),
        "compute_mode": device.compute_mode,
        "persistence_mode": device.persistence_mode,
        "uncorrected_errors": device.uncorrected_errors,
        "unique_id": device.unique_id.map(|id| format!("{id:#x}")),
        "units": units,
    });
    add_identity(&mut value, identity);
    value
}

fn process(used: &Use) -> Value {
    json!({ "pid": used.pid, "memory_mib": used.memory_mib })
}

/// A unit, with what the caller knows of it.
pub(super) fn unit(inventory: &Inventory, unit: &Unit, fields: Map<String, Value>) -> Value {
    let instances = inventory.devices[unit.device].instances.as_ref();
    let instance = unit.instance.zip(instances).map(|(at, instances)| {
        let Instance { uuid, profile, gpu_instance, compute_instance, memory_mib, .. } = &instances[at];
        json!({
            "uuid": uuid,
            "profile": profile,
            "gpu_instance": gpu_instance,
            "compute_instance": compute_instance,
            "memory_mib": memory_mib,
        })
    });
    let mut value = Map::new();
    value.insert("slot".to_owned(), json!(unit.slot));
    value.insert("instance".to_owned(), json!(instance));
    value.extend(fields);
    Value::Object(value)
}

/// An assignment, as its owner and what is recorded of it.
pub(super) fn owner(host: &Host, accounts: &Accounts, assignment: &Assignment, standing: Standing) -> Value {
    let owner = &assignment.owner;
    let is_alive = standing == Standing::Alive;
    let standing = match standing {
        Standing::Alive => "alive",
        Standing::Dead => "dead",
        Standing::Doubtful(_) => "unknown",
    };
    let denied = isolation::in_force(host, assignment);
    let (denied, problem) = match &denied {
        None => (None, None),
        Some(Ok(spans)) => (Some(spans.iter().map(ToString::to_string).collect::<Vec<_>>()), None),
        Some(Err(problem)) => (None, Some(problem)),
    };
    json!({
        "pid": owner.pid,
        "uid": owner.uid,
        "user": owner.uid.and_then(|uid| accounts.known_name(uid)),
        "start": owner.start,
        "boot_id": owner.boot,
        "pid_namespace": owner.pid_namespace,
        "command": if is_alive { command(host, owner) } else { None },
        "standing": standing,
        "since": assignment.since,
        "namespace": assignment.namespace,
        "grant": assignment.grant.map(|grant| format!("{:016x}", grant.id)),
        "invocation_id": assignment.invocation,
        "cgroup": assignment.cgroup,
        "denied": denied,
        "denied_problem": problem,
    })
}

/// Of a pid of our own namespace: in another it is another process.
pub(super) fn command(host: &Host, owner: &Owner) -> Option<String> {
    let is_from_here = owner.pid_namespace.is_none() || owner.pid_namespace == host.pid_namespace();
    if is_from_here { host.command_line(owner.pid) } else { None }
}

/// An assignment of a device that is not in the inventory at hand.
pub(super) fn elsewhere(
    host: &Host,
    accounts: &Accounts,
    assignment: &Assignment,
    standing: Standing,
) -> Value {
    let mut value = json!({
        "index": assignment.index,
        "slot": assignment.slot,
        "owner": owner(host, accounts, assignment, standing),
    });
    add_identity(&mut value, &assignment.identity);
    value
}

fn add_identity(value: &mut Value, identity: &Identity) {
    value["uuid"] = json!(identity.uuid);
    value["pci"] = json!(identity.pci.map(|pci| pci.to_string()));
    value["id"] = json!(identity.id);
}
