//! Which units a host has, and what they are called: the configuration applied to the inventory. Pure.
//!
//! The names are those of the device plugin: `nvidia.com/gpu`, `nvidia.com/gpu.shared`, `nvidia.com/mig-1g.10gb`. A
//! device that is not configured is a `gpu` of its vendor.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Config, MigStrategy, SharedDevices, SharedResource, Way};
use crate::device::{Instance, Inventory, Part, Unit};
use crate::error::Error;

/// The resource names of a host's units. The default is that of a host without devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Without those that are not offered.
    names: BTreeMap<Part, String>,
    /// The devices and instances that are shared, and how.
    shared: BTreeMap<Part, Way>,
    /// What is requested if no resource is named.
    plain: String,
    /// Whether the configuration says what is offered under which name.
    pub(crate) is_configured: bool,
    fails_requests_greater_than_one: bool,
}

impl Resources {
    /// Divides the devices of `inventory` into the shares that `config` asks for. `domain`: the vendor's, `nvidia.com`.
    pub(crate) fn of(
        config: Option<&Config>,
        inventory: &mut Inventory,
        domain: &str,
    ) -> Result<Resources, Error> {
        let plain = format!("{domain}/gpu");
        let names =
            names(inventory, config.and_then(|config| config.mig), &plain).map_err(Error::Inventory)?;
        let mut resources = Resources {
            names,
            shared: BTreeMap::new(),
            plain,
            is_configured: config.is_some_and(|config| config.mig.is_some() || config.sharing.is_some()),
            fails_requests_greater_than_one: false,
        };
        let sharing = config.and_then(|config| Some((config, config.sharing.as_ref()?)));
        let Some((config, sharing)) = sharing else { return Ok(resources) };
        resources.fails_requests_greater_than_one = sharing.fails_requests_greater_than_one;
        let chosen = sharing.resources.iter().map(|shared| {
            let parts = resources.parts(shared, inventory);
            parts.map(|parts| (shared, parts)).map_err(|problem| config.error(shared.position, problem))
        });
        for (shared, parts) in chosen.collect::<Result<Vec<_>, Error>>()? {
            for part in parts {
                resources.share(part, shared, sharing.way, inventory);
            }
        }
        Ok(resources)
    }

    fn share(&mut self, part: Part, shared: &SharedResource, way: Way, inventory: &mut Inventory) {
        self.shared.insert(part, way);
        if let Some(name) = &shared.rename {
            self.names.insert(part, name.clone());
        }
        let device = &mut inventory.devices[part.device];
        match (part.instance, &mut device.instances) {
            (Some(at), Some(instances)) => instances[at].slots = Some(shared.replicas),
            _ => device.slots = Some(shared.replicas),
        }
    }

    /// The devices and instances of the resource that are to be shared.
    fn parts(&self, shared: &SharedResource, inventory: &Inventory) -> Result<Vec<Part>, String> {
        let of_name: Vec<Part> =
            self.names.iter().filter(|(_, name)| **name == shared.name).map(|(part, _)| *part).collect();
        match &shared.devices {
            SharedDevices::All => Ok(of_name),
            SharedDevices::Count(count) => Ok(of_name.into_iter().take(*count as usize).collect()),
            SharedDevices::List(list) => {
                list.iter().map(|text| named(inventory, &of_name, text, shared)).collect()
            }
        }
    }

    /// The resource name of a unit; `None`: it is not offered.
    pub(crate) fn name(&self, unit: &Unit) -> Option<&str> {
        self.names.get(&unit.part()).map(String::as_str)
    }

    /// How a unit is shared with others, if it is.
    pub(crate) fn way(&self, unit: &Unit) -> Option<Way> {
        self.shared.get(&unit.part()).copied()
    }

    /// Every resource name of the host, with its number of units.
    fn counted(&self, inventory: &Inventory) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for unit in inventory.units() {
            self.name(&unit).into_iter().for_each(|name| *counts.entry(name).or_insert(0) += 1);
        }
        counts
    }

    /// Whether a unit has the requested name, or the plain one if none is requested. Where nothing is configured, an
    /// instance counts as a device too, and can be requested by its profile.
    fn is_of(&self, unit: &Unit, asked: Option<&str>, inventory: &Inventory) -> bool {
        let Some(name) = self.name(unit) else { return false };
        match asked {
            Some(asked) => {
                name == asked || (!self.is_configured && profile(inventory, unit).as_deref() == Some(asked))
            }
            None => !self.is_configured || name == self.plain,
        }
    }

    /// Those of `units` that are of the resource; an error if the host has none of it.
    pub(crate) fn only(
        &self,
        mut units: Vec<Unit>,
        asked: Option<&str>,
        inventory: &Inventory,
    ) -> Result<Vec<Unit>, String> {
        let exists = inventory.units().any(|unit| self.is_of(&unit, asked, inventory));
        if !exists && (asked.is_some() || self.is_configured) {
            let has = self.counted(inventory).into_iter().map(|(name, count)| format!("{name} ({count})"));
            let has: Vec<String> = has.collect();
            let has = if has.is_empty() { "none at all".to_owned() } else { has.join(", ") };
            let name = asked.unwrap_or(&self.plain);
            return Err(format!(
                "this host has no resource `{name}`; it has {has}: name one with --resource"
            ));
        }
        units.retain(|unit| self.is_of(unit, asked, inventory));
        Ok(units)
    }

    /// Why so many shares are not granted to one owner, if they are not.
    pub(crate) fn refusal(&self, amount: u128, units: &[Unit]) -> Option<String> {
        if amount <= 1 || !self.fails_requests_greater_than_one {
            return None;
        }
        let why = match units.iter().find_map(|unit| self.way(unit))? {
            Way::TimeSlicing => {
                "a second share gives no more of a device, which its owners take in turns; ask for 1 (or set \
                 failRequestsGreaterThanOne to false)"
            }
            Way::Mps => {
                "a second share gives no more of a device to a client of MPS, which has the limits of one; ask for 1"
            }
        };
        Some(format!("{amount} shares of shared devices asked for, and at most 1 is given at a time: {why}"))
    }
}

/// The resource name of an instance's profile: `1g.5gb+me` cannot be a resource name, `1g.5gb.me` can.
fn profile(inventory: &Inventory, unit: &Unit) -> Option<String> {
    let profile = instance(inventory, unit)?.profile.as_ref()?;
    Some(format!("nvidia.com/mig-{}", profile.replace('+', ".")))
}

fn instance<'a>(inventory: &'a Inventory, unit: &Unit) -> Option<&'a Instance> {
    inventory.devices[unit.device].instances.as_ref()?.get(unit.instance?)
}

/// The names of all devices and instances, before any of them is shared.
fn names(
    inventory: &Inventory,
    strategy: Option<MigStrategy>,
    plain: &str,
) -> Result<BTreeMap<Part, String>, String> {
    if strategy == Some(MigStrategy::Single) {
        check_alike(inventory)?;
    }
    let name = |unit: &Unit| match (unit.instance, strategy) {
        (None, _) | (Some(_), None | Some(MigStrategy::Single)) => Some(plain.to_owned()),
        (Some(_), Some(MigStrategy::None)) => None,
        (Some(_), Some(MigStrategy::Mixed)) => profile(inventory, unit),
    };
    Ok(inventory.units().filter_map(|unit| Some((unit.part(), name(&unit)?))).collect())
}

/// Strategy `single` needs all units to be of one kind.
fn check_alike(inventory: &Inventory) -> Result<(), String> {
    let mut kinds: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for unit in inventory.units() {
        let kind = match instance(inventory, &unit) {
            Some(instance) => instance.profile.as_deref().unwrap_or("an unknown profile"),
            None => "no MIG",
        };
        kinds.entry(kind).or_default().insert(inventory.devices[unit.device].index);
    }
    if kinds.len() <= 1 {
        return Ok(());
    }
    let told = kinds.into_iter().map(|(kind, devices)| {
        let devices: Vec<String> = devices.into_iter().map(|index| index.to_string()).collect();
        format!("{kind} on device {}", devices.join(", "))
    });
    let told: Vec<String> = told.collect();
    Err(format!(
        "migStrategy single needs instances that are all alike, and there are {}; use mixed",
        told.join("; ")
    ))
}

/// The device or instance that an index, a UUID or `GPU:INSTANCE` names.
fn named(inventory: &Inventory, of: &[Part], text: &str, shared: &SharedResource) -> Result<Part, String> {
    let is_it = |part: &&Part| {
        let device = &inventory.devices[part.device];
        let index = match part.instance {
            Some(at) => format!("{}:{at}", device.index),
            None => device.index.to_string(),
        };
        let instance = part.instance.and_then(|at| device.instances.as_ref()?.get(at)?.uuid.as_deref());
        let uuid = if part.instance.is_some() { instance } else { device.identity.uuid.as_deref() };
        index == text || uuid == Some(text)
    };
    of.iter().find(is_it).copied().ok_or_else(|| {
        format!(
            "`{text}` among the shared devices of {} is not a device of that resource on this host; `gpu-coord \
             devices` shows them",
            shared.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::device::{Device, Identity};

    const WHOLE: Option<&[&str]> = None;

    /// `GPU-0`, `GPU-1`, ...; what is divided has instances `MIG-0-0`, `MIG-0-1`, ... of these profiles.
    fn host(devices: &[Option<&[&str]>]) -> Inventory {
        let instance = |device: u32, (at, profile): (usize, &&str)| Instance {
            uuid: Some(format!("MIG-{device}-{at}")),
            profile: (!profile.is_empty()).then(|| (*profile).to_owned()),
            ..Instance::default()
        };
        let device = |(index, profiles): (u32, &Option<&[&str]>)| {
            let uuid = Some(format!("GPU-{index}"));
            let instances = profiles.map(|profiles| {
                profiles.iter().enumerate().map(|profile| instance(index, profile)).collect()
            });
            Device { instances, ..Device::new(index, Identity { uuid, ..Identity::default() }) }
        };
        let devices = (0..).zip(devices).map(device).collect();
        Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true }
    }

    fn resources(text: &str, inventory: &mut Inventory) -> Result<Resources, String> {
        let config = config::parse(text, None).unwrap();
        let resources = Resources::of(Some(&config).filter(|_| !text.is_empty()), inventory, "nvidia.com");
        resources.map_err(|error| match error {
            Error::Configuration { problem, .. } => problem,
            error => error.to_string(),
        })
    }

    /// `0`, `0#1` (a share), `0:1` (an instance), `0:1#1`.
    fn spelt(unit: &Unit, inventory: &Inventory) -> String {
        let index = inventory.devices[unit.device].index.to_string();
        let instance = unit.instance.map(|at| format!(":{at}")).unwrap_or_default();
        index + &instance + &unit.slot.map(|slot| format!("#{slot}")).unwrap_or_default()
    }

    /// The units by their names, of which the domain is left out.
    fn offered(text: &str, devices: &[Option<&[&str]>]) -> Result<String, String> {
        let mut inventory = host(devices);
        let resources = resources(text, &mut inventory)?;
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for unit in inventory.units() {
            let name = resources.name(&unit).map(|name| name.replace("nvidia.com/", ""));
            names.entry(name.unwrap_or_else(|| "-".to_owned())).or_default().push(spelt(&unit, &inventory));
        }
        let told = names.into_iter().map(|(name, units)| format!("{name}: {}", units.join(" ")));
        Ok(told.collect::<Vec<_>>().join("; "))
    }

    #[test]
    #[rustfmt::skip] // a table
    fn names_by_strategy() {
        let alike: Option<&[&str]> = Some(&["1g.5gb", "1g.5gb"]);
        let unlike: Option<&[&str]> = Some(&["1g.5gb", "3g.20gb", "1g.5gb+me"]);
        let (divided_into_none, unknown): (Option<&[&str]>, Option<&[&str]>) = (Some(&[]), Some(&["", "1g.5gb"]));
        let refused = |kinds: &str| Err(format!("migStrategy single needs instances that are all alike, and there are {kinds}; use mixed"));
        for (case, strategy, devices, told) in [
            ("unset",               "",       &[WHOLE, unlike][..],          Ok("gpu: 0 1:0 1:1 1:2".to_owned())),
            ("none",                "none",   &[WHOLE, unlike],              Ok("-: 1:0 1:1 1:2; gpu: 0".to_owned())),
            ("none, all divided",   "none",   &[alike],                      Ok("-: 0:0 0:1".to_owned())),
            ("single",              "single", &[alike, alike],               Ok("gpu: 0:0 0:1 1:0 1:1".to_owned())),
            ("single without MIG",  "single", &[WHOLE, WHOLE],               Ok("gpu: 0 1".to_owned())),
            ("single, not made yet", "single", &[alike, divided_into_none],  Ok("gpu: 0:0 0:1".to_owned())),
            ("single, unlike",      "single", &[alike, unlike],              refused("1g.5gb on device 0, 1; 1g.5gb+me on device 1; 3g.20gb on device 1")),
            ("single and whole",    "single", &[alike, WHOLE, WHOLE],        refused("1g.5gb on device 0; no MIG on device 1, 2")),
            ("single, unknown",     "single", &[unknown],                    refused("1g.5gb on device 0; an unknown profile on device 0")),
            ("mixed",               "mixed",  &[WHOLE, unlike, alike],       Ok("gpu: 0; mig-1g.5gb: 1:0 2:0 2:1; mig-1g.5gb.me: 1:2; mig-3g.20gb: 1:1".to_owned())),
            ("mixed without MIG",   "mixed",  &[WHOLE, WHOLE],               Ok("gpu: 0 1".to_owned())),
            ("mixed, unknown",      "mixed",  &[unknown],                    Ok("-: 0:0; mig-1g.5gb: 0:1".to_owned())),
        ] {
            let text = if strategy.is_empty() { String::new() } else { format!("flags: {{migStrategy: {strategy}}}") };
            assert_eq!(offered(&text, devices), told, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn shares_by_configuration() {
        let divided: Option<&[&str]> = Some(&["1g.5gb", "1g.5gb", "2g.10gb"]);
        let missing = |item: &str, name: &str| Err(format!("`{item}` among the shared devices of {name} is not a device of that resource on this host; `gpu-coord devices` shows them"));
        let ok = |text: &str| Ok(text.to_owned());
        for (case, ways, devices, told) in [
            ("all",                     "resources: [{name: gpu, replicas: 2}]",                                        &[WHOLE, WHOLE][..], ok("gpu: 0#0 0#1 1#0 1#1")),
            ("renamed by default",      "renameByDefault: true, resources: [{name: gpu, replicas: 2}]",                 &[WHOLE],            ok("gpu.shared: 0#0 0#1")),
            ("renamed",                 "resources: [{name: gpu, replicas: 2, rename: half}]",                          &[WHOLE],            ok("half: 0#0 0#1")),
            ("renamed, not by default", "renameByDefault: true, resources: [{name: gpu, replicas: 2, rename: half}]",   &[WHOLE],            ok("half: 0#0 0#1")),
            ("a count",                 "resources: [{name: gpu, replicas: 2, devices: 1}]",                            &[WHOLE, WHOLE],     ok("gpu: 0#0 0#1 1")),
            ("a count of too many",     "resources: [{name: gpu, replicas: 2, devices: 9}]",                            &[WHOLE],            ok("gpu: 0#0 0#1")),
            ("a count, renamed",        "resources: [{name: gpu, replicas: 2, devices: 1, rename: half}]",              &[WHOLE, WHOLE],     ok("gpu: 1; half: 0#0 0#1")),
            ("an index and a UUID",     "resources: [{name: gpu, replicas: 2, devices: [2, GPU-0]}]",                   &[WHOLE; 3],         ok("gpu: 0#0 0#1 1 2#0 2#1")),
            ("one named twice",         "resources: [{name: gpu, replicas: 2, devices: [0, GPU-0, \"0\"]}]",            &[WHOLE],            ok("gpu: 0#0 0#1")),
            ("a profile",               "resources: [{name: mig-1g.5gb, replicas: 2}]",                                 &[divided],          ok("mig-1g.5gb: 0:0#0 0:0#1 0:1#0 0:1#1; mig-2g.10gb: 0:2")),
            ("a count of instances",    "resources: [{name: mig-1g.5gb, replicas: 2, devices: 1}]",                     &[divided],          ok("mig-1g.5gb: 0:0#0 0:0#1 0:1; mig-2g.10gb: 0:2")),
            ("GPU:INSTANCE",            "resources: [{name: mig-1g.5gb, replicas: 2, devices: [\"0:1\"]}]",             &[divided],          ok("mig-1g.5gb: 0:0 0:1#0 0:1#1; mig-2g.10gb: 0:2")),
            ("an instance by UUID",     "resources: [{name: mig-1g.5gb, replicas: 2, devices: [MIG-0-1]}]",             &[divided],          ok("mig-1g.5gb: 0:0 0:1#0 0:1#1; mig-2g.10gb: 0:2")),
            ("two resources",           "resources: [{name: gpu, replicas: 2}, {name: mig-2g.10gb, replicas: 3}]",      &[WHOLE, divided],   ok("gpu: 0#0 0#1; mig-1g.5gb: 1:0 1:1; mig-2g.10gb: 1:2#0 1:2#1 1:2#2")),
            ("names exchanged",         "resources: [{name: gpu, replicas: 2, rename: mig-1g.5gb}, {name: mig-1g.5gb, replicas: 2, rename: gpu}]", &[WHOLE, Some(&["1g.5gb"])], ok("gpu: 1:0#0 1:0#1; mig-1g.5gb: 0#0 0#1")),
            ("what is not here",        "resources: [{name: gpu, replicas: 2}, {name: mig-7g.80gb, replicas: 2}]",      &[WHOLE],            ok("gpu: 0#0 0#1")),
            ("of another vendor",       "resources: [{name: amd.com/gpu, replicas: 2}]",                                &[WHOLE],            ok("gpu: 0")),
            ("an index not here",       "resources: [{name: gpu, replicas: 2, devices: [0, 7]}]",                       &[WHOLE],            missing("7", "nvidia.com/gpu")),
            ("a UUID not here",         "resources: [{name: gpu, replicas: 2, devices: [GPU-7]}]",                      &[WHOLE],            missing("GPU-7", "nvidia.com/gpu")),
            ("no beginning of one",     "resources: [{name: gpu, replicas: 2, devices: [GPU-]}]",                       &[WHOLE],            missing("GPU-", "nvidia.com/gpu")),
            ("a divided device",        "resources: [{name: gpu, replicas: 2, devices: [1]}]",                          &[WHOLE, divided],   missing("1", "nvidia.com/gpu")),
            ("of another profile",      "resources: [{name: mig-1g.5gb, replicas: 2, devices: [\"0:2\"]}]",             &[divided],          missing("0:2", "nvidia.com/mig-1g.5gb")),
            ("a list of what is not here", "resources: [{name: mig-7g.80gb, replicas: 2, devices: [0]}]",               &[WHOLE],            missing("0", "nvidia.com/mig-7g.80gb")),
        ] {
            for way in ["timeSlicing", "mps"] {
                let text = format!("flags: {{migStrategy: mixed}}\nsharing: {{{way}: {{{ways}}}}}");
                assert_eq!(offered(&text, devices), told, "{case}, {way}");
            }
        }
    }

    #[test]
    fn what_is_shared_says_how() {
        for (way, is) in [("timeSlicing", Way::TimeSlicing), ("mps", Way::Mps)] {
            let text =
                format!("sharing: {{{way}: {{resources: [{{name: gpu, replicas: 2, devices: [1]}}]}}}}");
            let mut inventory = host(&[WHOLE, WHOLE]);
            let resources = resources(&text, &mut inventory).unwrap();
            let ways: Vec<_> = inventory.units().map(|unit| resources.way(&unit)).collect();
            assert_eq!(ways, [None, Some(is), Some(is)]);
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_resource_is_asked_for_by_its_name() {
        const SHARED: &str = "flags: {migStrategy: mixed}\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2, devices: 1}]}}";
        const ALL_SHARED: &str = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}";
        const QUOTAS: &str = "gpu-coord: {quotas: {a: {gpu: 1}}}";
        let refused = |name: &str, has: &str| Err(format!("this host has no resource `{name}`; it has {has}: name one with --resource"));
        let ok = |text: &str| Ok(text.to_owned());
        let divided: Option<&[&str]> = Some(&["1g.5gb", "2g.10gb+me"]);
        let all = &[WHOLE, WHOLE, divided][..];
        for (case, text, devices, asked, units) in [
            ("not configured",       "",         all,      None,                             ok("0 1 2:0 2:1")),
            ("the plain name",       "",         all,      Some("nvidia.com/gpu"),           ok("0 1 2:0 2:1")),
            ("a profile",            "",         all,      Some("nvidia.com/mig-1g.5gb"),    ok("2:0")),
            ("with media engines",   "",         all,      Some("nvidia.com/mig-2g.10gb.me"), ok("2:1")),
            ("a name without its domain", "",    all,      Some("gpu"),                      refused("gpu", "nvidia.com/gpu (4)")),
            ("of another vendor",    "",         all,      Some("amd.com/gpu"),              refused("amd.com/gpu", "nvidia.com/gpu (4)")),
            ("no device at all",     "",         &[],      Some("nvidia.com/gpu"),           refused("nvidia.com/gpu", "none at all")),
            ("no device, no name",   "",         &[],      None,                             ok("")),
            ("quotas name nothing",  QUOTAS,     all,      None,                             ok("0 1 2:0 2:1")),
            ("what is left whole",   SHARED,     all,      None,                             ok("1")),
            ("shares",               SHARED,     all,      Some("nvidia.com/gpu.shared"),    ok("0#0 0#1")),
            ("a profile by name",    SHARED,     all,      Some("nvidia.com/mig-1g.5gb"),    ok("2:0")),
            ("none of that name",    SHARED,     all,      Some("nvidia.com/mig-3g.20gb"),   refused("nvidia.com/mig-3g.20gb", "nvidia.com/gpu (1), nvidia.com/gpu.shared (2), nvidia.com/mig-1g.5gb (1), nvidia.com/mig-2g.10gb.me (1)")),
            ("nothing is left whole", ALL_SHARED, &[WHOLE, WHOLE], None,                     refused("nvidia.com/gpu", "nvidia.com/gpu.shared (4)")),
            ("nothing is offered",   "flags: {migStrategy: none}", &[divided], None,         refused("nvidia.com/gpu", "none at all")),
        ] {
            let mut inventory = host(devices);
            let resources = resources(text, &mut inventory).unwrap();
            let found = resources.only(inventory.units().collect(), asked, &inventory);
            let found = found.map(|units| units.iter().map(|unit| spelt(unit, &inventory)).collect::<Vec<_>>().join(" "));
            assert_eq!(found, units, "{case}");
        }
    }

    #[test]
    fn a_resource_of_which_nothing_is_left_is_here_all_the_same() {
        let mut inventory = host(&[WHOLE, Some(&["1g.5gb"])]);
        let resources = resources("flags: {migStrategy: mixed}", &mut inventory).unwrap();
        let whole = inventory.units().take(1).collect();
        assert_eq!(resources.only(whole, Some("nvidia.com/mig-1g.5gb"), &inventory), Ok(Vec::new()));
    }

    #[test]
    #[rustfmt::skip] // a table
    fn more_than_one_share_is_refused_where_it_is_wished() {
        const SLICED: &str = "more shares of shared devices asked for, and at most 1 is given at a time: a second share gives no more of a \
            device, which its owners take in turns; ask for 1 (or set failRequestsGreaterThanOne to false)";
        const MPS: &str = "more shares of shared devices asked for, and at most 1 is given at a time: a second share gives no more of a \
            device to a client of MPS, which has the limits of one; ask for 1";
        for (case, text, amount, refusal) in [
            ("not configured",      "",                                                                                              2, None),
            ("as it is by default", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}",                                   2, None),
            ("one",                 "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: gpu, replicas: 2}]}}", 1, None),
            ("two",                 "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: gpu, replicas: 2}]}}", 2, Some(SLICED)),
            ("nothing is shared",   "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: mig-x, replicas: 2}]}}", 2, None),
            ("MPS, always",         "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",                                           2, Some(MPS)),
            ("MPS, said otherwise", "sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: gpu, replicas: 2}]}}",        2, Some(MPS)),
            ("MPS, one",            "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",                                           1, None),
        ] {
            let mut inventory = host(&[WHOLE, WHOLE]);
            let resources = resources(text, &mut inventory).unwrap();
            let units: Vec<Unit> = inventory.units().collect();
            let refusal = refusal.map(|text| text.replacen("more", &amount.to_string(), 1));
            assert_eq!(resources.refusal(amount, &units), refusal, "{case}");
        }
    }
}
