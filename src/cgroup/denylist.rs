//! Which device nodes the owner of a grant may not open: pure.
//!
//! These are all nodes of the host's GPUs except those of the granted devices, whether or not they exist at the moment:
//! drivers create nodes late, and tools recreate them. What every process needs (nvidiactl, modeset, uvm, kfd) is not a
//! node of a GPU and is never denied; neither is a card that is not in the inventory, which may drive a display.

use std::collections::BTreeSet;
use std::fmt;

use crate::device::{Inventory, Unit};
use crate::host::node::{Access, Capability, NodeNumber};

/// The last minor of NVIDIA's cards; 254 is modeset, 255 nvidiactl.
const LAST_CARD: u32 = 253;

/// Minors of one major, from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) major: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// Character devices that may not be opened or created: ascending spans that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Denylist {
    pub(crate) spans: Vec<Span>,
}

/// `195:0-2`
impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { major, first, last } = self;
        if first == last { write!(out, "{major}:{first}") } else { write!(out, "{major}:{first}-{last}") }
    }
}

impl Denylist {
    pub(crate) fn of(numbers: impl IntoIterator<Item = NodeNumber>) -> Denylist {
        let numbers: BTreeSet<NodeNumber> = numbers.into_iter().collect();
        let mut spans: Vec<Span> = Vec::new();
        for NodeNumber { major, minor } in numbers {
            match spans.last_mut() {
                Some(span) if span.major == major && span.last + 1 == minor => span.last = minor,
                _ => spans.push(Span { major, first: minor, last: minor }),
            }
        }
        Denylist { spans }
    }

    pub(crate) fn denies(&self, number: NodeNumber) -> bool {
        let holds =
            |span: &Span| span.major == number.major && (span.first..=span.last).contains(&number.minor);
        self.spans.iter().any(holds)
    }

    /// The union with `others`, except for the nodes of `granted` among these.
    pub(crate) fn with(&self, others: &Denylist, granted: &BTreeSet<NodeNumber>) -> Denylist {
        Denylist::of(self.numbers().chain(others.numbers().filter(|number| !granted.contains(number))))
    }

    /// Every node, in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = NodeNumber> + '_ {
        self.spans
            .iter()
            .flat_map(|span| (span.first..=span.last).map(|minor| NodeNumber { major: span.major, minor }))
    }
}

/// What a group must deny and allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceRules {
    pub(crate) denied: Denylist,
    /// What must be allowed: none of it is in `denied`.
    pub(crate) granted: BTreeSet<NodeNumber>,
}

/// What is known about the nodes of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// The major of NVIDIA's cards, if the inventory has any.
    pub(crate) cards: Option<u32>,
    /// The major of NVIDIA's capability nodes, and what each gives access to.
    pub(crate) capabilities: Option<(u32, Vec<Capability>)>,
    /// The nodes of each device, in the order of the inventory.
    pub(crate) devices: Vec<BTreeSet<NodeNumber>>,
}

impl Nodes {
    /// The rules for an owner that is granted `granted`, or why there can be none.
    pub(crate) fn rules(&self, inventory: &Inventory, granted: &[Unit]) -> Result<DeviceRules, String> {
        let denied = self.denied_to(inventory, granted)?;
        let capabilities = self.capabilities_of(&numbered(inventory, granted)?);
        Ok(DeviceRules { denied, granted: self.given(granted).into_iter().chain(capabilities).collect() })
    }

    /// The rules for processes that are granted nothing, as far as nodes are known.
    pub(crate) fn rules_of_orphans(&self, inventory: &Inventory) -> DeviceRules {
        let capabilities = self.capabilities_denied_to(inventory, &[]).unwrap_or_default();
        let denied = Denylist::of(self.of_gpus().into_iter().chain(capabilities));
        DeviceRules { denied, granted: BTreeSet::new() }
    }

    fn denied_to(&self, inventory: &Inventory, granted: &[Unit]) -> Result<Denylist, String> {
        self.check_all_known(inventory)?;
        let given = self.given(granted);
        let is_given = |device: usize| granted.iter().any(|unit| unit.device == device);
        let shared = (0..self.devices.len()).find(|at| !is_given(*at) && self.devices[*at].is_subset(&given));
        if let Some(at) = shared {
            let index = inventory.devices[at].index;
            return Err(format!("device {index} has no node of its own, so it cannot be denied alone"));
        }
        let mut denied = self.of_gpus();
        denied.retain(|number| !given.contains(number));
        denied.extend(self.capabilities_denied_to(inventory, granted)?);
        Ok(Denylist::of(denied))
    }

    /// The nodes of the devices of `granted`.
    pub(crate) fn given(&self, granted: &[Unit]) -> BTreeSet<NodeNumber> {
        granted.iter().flat_map(|unit| self.devices[unit.device].iter().copied()).collect()
    }

    fn check_all_known(&self, inventory: &Inventory) -> Result<(), String> {
        let Some(at) = self.devices.iter().position(BTreeSet::is_empty) else { return Ok(()) };
        let (index, source) = (inventory.devices[at].index, &inventory.source);
        Err(format!(
            "no device node of device {index} is known to source {source} or the kernel (on WSL and for simulated \
             devices there is none), so it can be neither given nor denied"
        ))
    }

    /// All of NVIDIA's cards, whether or not they exist, and every device of the inventory.
    fn of_gpus(&self) -> BTreeSet<NodeNumber> {
        let cards = self.cards.into_iter();
        let cards = cards.flat_map(|major| (0..=LAST_CARD).map(move |minor| NodeNumber { major, minor }));
        cards.chain(self.devices.iter().flatten().copied()).collect()
    }

    /// The capability nodes of these instances.
    fn capabilities_of(&self, instances: &[Numbered]) -> Vec<NodeNumber> {
        let Some((major, capabilities)) = &self.capabilities else { return Vec::new() };
        let opens = |capability: &&Capability| instances.iter().any(|it| it.is_opened_by(capability.access));
        let number = |capability: &Capability| NodeNumber { major: *major, minor: capability.minor };
        capabilities.iter().filter(opens).map(number).collect()
    }

    /// For divided cards: every instance that could be created except those granted, and the creation of instances.
    fn capabilities_denied_to(
        &self,
        inventory: &Inventory,
        granted: &[Unit],
    ) -> Result<Vec<NodeNumber>, String> {
        let given =
            granted.iter().filter_map(|unit| instance(inventory, unit)).collect::<Result<Vec<_>, _>>()?;
        let Some((major, capabilities)) = &self.capabilities else {
            let problem = "the kernel has no nodes of MIG instances (`nvidia-caps` in /proc/devices), so they cannot be \
                           isolated from each other";
            return if given.is_empty() { Ok(Vec::new()) } else { Err(problem.to_owned()) };
        };
        if let Some(unknown) = given.iter().find(|given| !given.is_listed(capabilities)) {
            let Numbered { card, gpu_instance, compute_instance } = unknown;
            return Err(format!(
                "the driver lists no nodes of MIG instance {gpu_instance}/{compute_instance} of the card with minor \
                 {card}, so it cannot be isolated"
            ));
        }
        let divided = inventory.devices.iter().filter(|device| device.instances.is_some());
        let divided: BTreeSet<u32> = divided.filter_map(|device| device.minor).collect();
        let is_denied = |capability: &&Capability| match capability.access {
            Access::Configure => true,
            Access::Monitor => false,
            Access::Instance { card, .. } => {
                divided.contains(&card) && !given.iter().any(|given| given.is_opened_by(capability.access))
            }
        };
        let denied = capabilities.iter().filter(is_denied);
        Ok(denied.map(|capability| NodeNumber { major: *major, minor: capability.minor }).collect())
    }
}

/// An instance as the driver numbers it.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    card: u32,
    gpu_instance: u32,
    compute_instance: u32,
}

impl Numbered {
    /// Whether both of its nodes exist: that of its GPU instance and its own.
    fn is_listed(&self, capabilities: &[Capability]) -> bool {
        let is_there = |wanted: Option<u32>| {
            let is_it = |access: Access| match access {
                Access::Instance { compute_instance, .. } => {
                    compute_instance == wanted && self.is_opened_by(access)
                }
                Access::Configure | Access::Monitor => false,
            };
            capabilities.iter().any(|capability| is_it(capability.access))
        };
        is_there(None) && is_there(Some(self.compute_instance))
    }

    fn is_opened_by(&self, access: Access) -> bool {
        let Access::Instance { card, gpu_instance, compute_instance } = access else { return false };
        (card, gpu_instance) == (self.card, self.gpu_instance)
            && compute_instance.is_none_or(|number| number == self.compute_instance)
    }
}

/// The instances among the units.
fn numbered(inventory: &Inventory, units: &[Unit]) -> Result<Vec<Numbered>, String> {
    units.iter().filter_map(|unit| instance(inventory, unit)).collect()
}

/// `None` for a whole device.
fn instance(inventory: &Inventory, unit: &Unit) -> Option<Result<Numbered, String>> {
    let device = &inventory.devices[unit.device];
    let instance = device.instances.as_ref()?.get(unit.instance?)?;
    let numbered = device.minor.zip(instance.gpu_instance).zip(instance.compute_instance);
    let numbered = numbered.map(|((card, gpu_instance), compute_instance)| Numbered {
        card,
        gpu_instance,
        compute_instance,
    });
    Some(numbered.ok_or_else(|| {
        format!(
            "source {} does not report the instance numbers of {}, so it cannot be isolated from its neighbours",
            inventory.source,
            instance.uuid.as_deref().unwrap_or("an instance")
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Identity, Instance};

    fn number(text: &str) -> NodeNumber {
        text.parse().unwrap()
    }

    fn numbers(text: &[&str]) -> BTreeSet<NodeNumber> {
        text.iter().map(|text| number(text)).collect()
    }

    fn shown(denied: &Denylist) -> String {
        denied.spans.iter().map(Span::to_string).collect::<Vec<_>>().join(" ")
    }

    fn inventory(devices: Vec<Device>) -> Inventory {
        Inventory { source: "nvml".to_owned(), driver_version: None, devices, tells_instances: true }
    }

    fn cards(minors: &[u32]) -> Inventory {
        let device = |(index, minor): (u32, &u32)| Device {
            minor: Some(*minor),
            ..Device::new(index, Identity::default())
        };
        inventory((0..).zip(minors).map(device).collect())
    }

    fn unit(device: usize) -> Unit {
        Unit { device, instance: None, slot: None }
    }

    fn nvidia(minors: &[u32]) -> Nodes {
        let own = |minor: &u32| BTreeSet::from([NodeNumber { major: 195, minor: *minor }]);
        Nodes { cards: Some(195), capabilities: None, devices: minors.iter().map(own).collect() }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn every_card_is_denied_but_those_granted_also_one_that_is_not_there() {
        for (minors, granted, denied) in [
            (&[0, 1, 2][..], &[1][..],    "195:0 195:2-253"),
            (&[0, 1, 2],     &[0],        "195:1-253"),
            (&[2, 0],        &[0],        "195:0-1 195:3-253"),
            (&[0, 1],        &[0, 1],     "195:2-253"),
            (&[253],         &[0],        "195:0-252"),
            (&[0],           &[],         "195:0-253"),
        ] {
            let granted: Vec<Unit> = granted.iter().map(|at| unit(*at)).collect();
            let denylist = nvidia(minors).denied_to(&cards(minors), &granted).unwrap();
            assert_eq!(shown(&denylist), denied, "{minors:?} {granted:?}");
            assert!(!denylist.denies(number("195:254")) && !denylist.denies(number("195:255")));
        }
    }

    #[test]
    fn the_graphics_nodes_of_the_others_are_denied_and_no_display() {
        let nodes = Nodes {
            devices: vec![numbers(&["226:1", "226:128"]), numbers(&["226:2", "226:129"])],
            ..Nodes::default()
        };
        let denylist = nodes.denied_to(&cards(&[128, 129]), &[unit(0)]).unwrap();
        assert_eq!(shown(&denylist), "226:2 226:129");
        assert!(!denylist.denies(number("226:0")), "a card that is no device of the inventory");
    }

    #[test]
    fn a_device_without_a_node_of_its_own_is_no_isolation() {
        let unknown = Nodes { devices: vec![numbers(&["195:0"]), BTreeSet::new()], ..Nodes::default() };
        let refused = unknown.denied_to(&cards(&[0, 1]), &[unit(0)]).unwrap_err();
        assert!(
            refused.starts_with("no device node of device 1 is known to source nvml or the kernel "),
            "{refused}"
        );
        assert_eq!(
            shown(&unknown.rules_of_orphans(&cards(&[0, 1])).denied),
            "195:0",
            "what is known is denied to orphans"
        );
        let shared = Nodes { devices: vec![numbers(&["1:7"]), numbers(&["1:7"])], ..Nodes::default() };
        let refused = shared.denied_to(&cards(&[0, 1]), &[unit(0)]).unwrap_err();
        assert_eq!(refused, "device 1 has no node of its own, so it cannot be denied alone");
    }

    /// Two cards, minors 3 and 0; the first is divided into instances 1/0, 1/1 and 2/0.
    fn divided() -> (Inventory, Nodes) {
        let mut inventory = cards(&[3, 0]);
        let instance = |gpu_instance, compute_instance| Instance {
            gpu_instance: Some(gpu_instance),
            compute_instance: Some(compute_instance),
            ..Instance::default()
        };
        inventory.devices[0].instances = Some(vec![instance(1, 0), instance(1, 1), instance(2, 0)]);
        let access =
            |card, gpu_instance, compute_instance| Access::Instance { card, gpu_instance, compute_instance };
        let list = [
            Access::Configure,
            Access::Monitor,
            access(3, 1, None),
            access(3, 1, Some(0)),
            access(3, 1, Some(1)),
            access(3, 2, None),
            access(3, 2, Some(0)),
            access(0, 1, None),
        ];
        let list = (1..).zip(list).map(|(minor, access)| Capability { minor, access }).collect();
        (inventory, Nodes { capabilities: Some((508, list)), ..nvidia(&[3, 0]) })
    }

    #[test]
    fn of_a_divided_card_only_the_granted_instance_opens() {
        let (inventory, nodes) = divided();
        let of = |instance| Unit { device: 0, instance: Some(instance), slot: None };
        let denied = |granted: &[Unit]| shown(&nodes.denied_to(&inventory, granted).unwrap());
        assert_eq!(denied(&[of(1)]), "195:0-2 195:4-253 508:1 508:4 508:6-7");
        assert_eq!(denied(&[of(0), of(2)]), "195:0-2 195:4-253 508:1 508:5");
        assert_eq!(denied(&[unit(1)]), "195:1-253 508:1 508:3-7");
        let granted = nodes.rules(&inventory, &[of(1)]).unwrap().granted;
        assert_eq!(granted, numbers(&["195:3", "508:3", "508:5"]), "its card, its GPU instance, itself");
    }

    #[test]
    fn an_instance_whose_node_is_unknown_is_no_isolation() {
        let (mut inventory, mut nodes) = divided();
        let of_first = Unit { device: 0, instance: Some(0), slot: None };
        nodes.capabilities = None;
        let refused = nodes.denied_to(&inventory, &[of_first]).unwrap_err();
        assert!(refused.starts_with("the kernel has no nodes of MIG instances"), "{refused}");
        nodes.capabilities = Some((508, Vec::new()));
        let refused = nodes.denied_to(&inventory, &[of_first]).unwrap_err();
        assert!(
            refused.starts_with("the driver lists no nodes of MIG instance 1/0 of the card with minor 3"),
            "{refused}"
        );
        inventory.devices[0].instances = Some(vec![Instance::default()]);
        let refused = nodes.denied_to(&inventory, &[of_first]).unwrap_err();
        assert!(
            refused.starts_with("source nvml does not report the instance numbers of an instance"),
            "{refused}"
        );
    }

    #[test]
    fn spans_are_in_order_and_apart() {
        let denylist = Denylist::of(["1:3", "1:1", "1:2", "0:9", "1:5"].map(number));
        assert_eq!(shown(&denylist), "0:9 1:1-3 1:5");
        assert_eq!(denylist.numbers().count(), 5);
        let more = denylist.with(&Denylist::of(["1:4", "1:6"].map(number)), &numbers(&["1:6", "1:1"]));
        assert_eq!(shown(&more), "0:9 1:1-5", "what is denied here stays so");
        assert!(
            denylist.denies(number("1:2"))
                && !denylist.denies(number("1:4"))
                && !denylist.denies(number("2:2"))
        );
    }
}
