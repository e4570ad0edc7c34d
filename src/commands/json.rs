//! The JSON that people's scripts read. Its version is 1, its names are those of docs/json.md, and it changes only by
//! addition: the fields of the structures here are all of it.

use std::borrow::Cow;

use serde::Serialize;
use sysinfo::System;

use super::isolation;
use crate::assignment::{Assignment, Owner, Standing};
use crate::device::{Device, Identity, Instance, Inventory, Unit, Use};
use crate::error::Error;
use crate::host::Host;
use crate::host::account::Accounts;
use crate::notes::Notes;
use crate::plain;

const VERSION: u32 = 1;

#[derive(Serialize)]
struct DocumentJson<'a, F> {
    version: u32,
    host: HostJson<'a>,
    #[serde(flatten)]
    fields: F,
    warnings: &'a [String],
}

/// `name` and `kernel` are those of the machine that this runs on, even with another host root.
#[derive(Serialize)]
struct HostJson<'a> {
    name: Option<String>,
    kernel: Option<String>,
    boot_id: Option<&'a str>,
    pid_namespace: Option<u64>,
    driver_version: Option<&'a str>,
}

/// What `status`, `devices` and `doctor` print: `fields`, and what they have in common.
pub(super) fn document(
    host: &Host,
    inventory: Option<&Inventory>,
    fields: impl Serialize,
    notes: &Notes,
) -> Result<String, Error> {
    let document = DocumentJson {
        version: VERSION,
        host: HostJson {
            name: System::host_name().ok(),
            kernel: System::kernel_version().ok(),
            boot_id: host.boot_id(),
            pid_namespace: host.pid_namespace(),
            driver_version: inventory.and_then(|inventory| inventory.driver_version.as_deref()),
        },
        fields,
        warnings: &notes.warnings,
    };
    let text = serde_json::to_string_pretty(&document).map_err(|error| Error::Output(error.into()))?;
    Ok(escaped(text) + "\n")
}

/// Escapes characters that serde leaves as they are, but that may control a terminal.
fn escaped(json: String) -> String {
    // Serde has escaped unsafe characters below this.
    if json.bytes().all(|byte| byte < 0x7f) {
        return json;
    }
    let is_unsafe = |char: char| char != '\n' && plain::is_unsafe(char);
    let mut text = String::with_capacity(json.len());
    let mut rest = json.as_str();
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

#[derive(Serialize)]
pub(super) struct IdentityJson<'a> {
    uuid: Option<&'a str>,
    pci: Option<String>,
    id: Option<&'a str>,
}

impl<'a> IdentityJson<'a> {
    pub(super) fn of(Identity { uuid, pci, id }: &'a Identity) -> IdentityJson<'a> {
        let pci = pci.map(|pci| pci.to_string());
        IdentityJson { uuid: uuid.as_deref(), pci, id: id.as_deref() }
    }
}

#[derive(Serialize)]
pub(super) struct DeviceJson<'a> {
    index: u32,
    #[serde(flatten)]
    identity: IdentityJson<'a>,
    name: Option<&'a str>,
    memory_mib: Option<u64>,
    minor: Option<u32>,
    nodes: Vec<Cow<'a, str>>,
    health: &'static str,
    reason: Option<&'a str>,
    memory_used_mib: Option<u64>,
    processes: Option<Vec<ProcessJson>>,
    compute_mode: Option<&'a str>,
    persistence_mode: Option<bool>,
    uncorrected_errors: Option<u64>,
    unique_id: Option<String>,
    units: Vec<UnitJson<'a>>,
}

#[derive(Serialize)]
struct ProcessJson {
    pid: u32,
    memory_mib: Option<u64>,
}

impl<'a> DeviceJson<'a> {
    pub(super) fn of(device: &'a Device, units: Vec<UnitJson<'a>>) -> DeviceJson<'a> {
        let process = |Use { pid, memory_mib }: &Use| ProcessJson { pid: *pid, memory_mib: *memory_mib };
        let reason = device.health.reason();
        DeviceJson {
            index: device.index,
            identity: IdentityJson::of(&device.identity),
            name: device.name.as_deref(),
            memory_mib: device.memory_mib,
            minor: device.minor,
            nodes: device.nodes.iter().map(|node| node.to_string_lossy()).collect(),
            health: if reason.is_some() { "sick" } else { "sound" },
            reason,
            memory_used_mib: device.memory_used_mib,
            processes: device.processes.as_ref().map(|uses| uses.iter().map(process).collect()),
            compute_mode: device.compute_mode.as_deref(),
            persistence_mode: device.persistence_mode,
            uncorrected_errors: device.uncorrected_errors,
            unique_id: device.unique_id.map(|id| format!("{id:#x}")),
            units,
        }
    }
}

#[derive(Serialize)]
pub(super) struct UnitJson<'a> {
    slot: Option<u32>,
    instance: Option<InstanceJson<'a>>,
    #[serde(flatten)]
    holding: Option<HoldingJson<'a>>,
}

#[derive(Serialize)]
struct InstanceJson<'a> {
    uuid: Option<&'a str>,
    profile: Option<&'a str>,
    gpu_instance: Option<u32>,
    compute_instance: Option<u32>,
    memory_mib: Option<u64>,
}

/// What the record says about a unit.
#[derive(Serialize)]
pub(super) struct HoldingJson<'a> {
    pub(super) resource: Option<&'a str>,
    pub(super) state: &'static str,
    pub(super) reason: Option<&'a str>,
    pub(super) in_use_by_others: Option<&'a [u32]>,
    pub(super) owner: Option<OwnerJson<'a>>,
    pub(super) other_owners: Vec<OwnerJson<'a>>,
}

impl<'a> UnitJson<'a> {
    pub(super) fn of(
        inventory: &'a Inventory,
        unit: &Unit,
        holding: Option<HoldingJson<'a>>,
    ) -> UnitJson<'a> {
        let instances = inventory.devices[unit.device].instances.as_ref();
        let instance = unit.instance.zip(instances).map(|(at, instances)| {
            let Instance { uuid, profile, gpu_instance, compute_instance, memory_mib, .. } = &instances[at];
            InstanceJson {
                uuid: uuid.as_deref(),
                profile: profile.as_deref(),
                gpu_instance: *gpu_instance,
                compute_instance: *compute_instance,
                memory_mib: *memory_mib,
            }
        });
        UnitJson { slot: unit.slot, instance, holding }
    }
}

/// The owner of an assignment, and what is recorded with it.
#[derive(Serialize)]
pub(super) struct OwnerJson<'a> {
    pid: u32,
    uid: Option<u32>,
    user: Option<&'a str>,
    start: Option<u64>,
    boot_id: Option<&'a str>,
    pid_namespace: Option<u64>,
    command: Option<String>,
    standing: &'static str,
    since: Option<u64>,
    namespace: Option<&'a str>,
    grant: Option<String>,
    invocation_id: Option<&'a str>,
    cgroup: Option<&'a str>,
    denied: Option<Vec<String>>,
    denied_problem: Option<String>,
}

impl<'a> OwnerJson<'a> {
    pub(super) fn of(
        host: &Host,
        accounts: &'a Accounts,
        assignment: &'a Assignment,
        standing: Standing,
    ) -> OwnerJson<'a> {
        let owner = &assignment.owner;
        let (denied, denied_problem) = match isolation::in_force(host, assignment) {
            None => (None, None),
            Some(Ok(spans)) => (Some(spans.iter().map(ToString::to_string).collect()), None),
            Some(Err(problem)) => (None, Some(problem)),
        };
        OwnerJson {
            pid: owner.pid,
            uid: owner.uid,
            user: owner.uid.and_then(|uid| accounts.known_name(uid)),
            start: owner.start,
            boot_id: owner.boot.as_deref(),
            pid_namespace: owner.pid_namespace,
            command: if standing == Standing::Alive { command(host, owner) } else { None },
            standing: match standing {
                Standing::Alive => "alive",
                Standing::Dead => "dead",
                Standing::Doubtful(_) => "unknown",
            },
            since: assignment.since,
            namespace: assignment.namespace.as_deref(),
            grant: assignment.grant.map(|grant| format!("{:016x}", grant.id)),
            invocation_id: assignment.invocation.as_deref(),
            cgroup: assignment.cgroup.as_deref(),
            denied,
            denied_problem,
        }
    }
}

/// The command line of an owner, if its pid is one of our namespace: otherwise it is another process here.
pub(super) fn command(host: &Host, owner: &Owner) -> Option<String> {
    if host.has_pids_of(owner) { host.command_line(owner.pid) } else { None }
}

/// An assignment to a device that is not in the inventory at hand.
#[derive(Serialize)]
pub(super) struct ElsewhereJson<'a> {
    pub(super) index: u32,
    pub(super) slot: Option<u32>,
    #[serde(flatten)]
    pub(super) identity: IdentityJson<'a>,
    pub(super) owner: OwnerJson<'a>,
}
