//! The program against a model: namespaces, quotas and shares, for any calls in any order.
//!
//! Record and policy alone, with instances, strangers and writers that are cut short, are set against one in
//! `src/coordination/model`.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::Host;
use crate::record::held_in;
use crate::running::{End, Running};
use crate::sandbox::Process;

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    Ask {
        owner: usize,
        namespace: usize,
        amount: usize,
        takes_over: bool,
    },
    GiveBack {
        owner: usize,
    },
    /// Another process takes its place.
    Die {
        owner: usize,
    },
    /// Devices are given in so many shares from now on.
    Divide {
        slots: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let owner = || 0..6_usize;
    prop_oneof![
        5 => (owner(), 0..3_usize, 1..4_usize, any::<bool>()).prop_map(
            |(owner, namespace, amount, takes_over)| Step::Ask { owner, namespace, amount, takes_over }
        ),
        2 => owner().prop_map(|owner| Step::GiveBack { owner }),
        1 => owner().prop_map(|owner| Step::Die { owner }),
        1 => (1..4_u32).prop_map(|slots| Step::Divide { slots }),
    ]
}

/// A share of a device, and who has it.
type Holding = (u32, Option<u32>, u32);

struct World {
    host: Host,
    owners: Vec<Process>,
    /// The model: shares, how many there are of each device, and the limits of the first two namespaces.
    devices: u32,
    slots: u32,
    limits: [Option<usize>; 2],
    held: BTreeSet<(Holding, usize)>,
    dead: BTreeSet<u32>,
}

fn configuration(slots: u32, limits: [Option<usize>; 2]) -> String {
    let replicas = match slots {
        1 => String::new(),
        slots => format!(
            "sharing:\n  timeSlicing:\n    resources:\n      - {{name: nvidia.com/gpu, replicas: {slots}}}\n"
        ),
    };
    let quota =
        |(name, limit): (&str, Option<usize>)| Some(format!("    {name}: {{nvidia.com/gpu: {}}}\n", limit?));
    let quotas: String = NAMESPACES.into_iter().zip(limits).filter_map(quota).collect();
    let quotas = if quotas.is_empty() { quotas } else { format!("gpu-coord:\n  quotas:\n{quotas}") };
    format!("version: v1\n{replicas}{quotas}")
}

impl World {
    fn new(devices: u32, slots: u32, limits: [Option<usize>; 2]) -> World {
        let host = Host::new(devices, &configuration(slots, limits));
        let owners = (0..6).map(|_| Process::start()).collect();
        World { host, owners, devices, slots, limits, held: BTreeSet::new(), dead: BTreeSet::new() }
    }

    fn units(&self) -> impl Iterator<Item = (u32, Option<u32>)> + use<> {
        let slots = self.slots;
        let slots = move || (0..slots).map(move |slot| (slots > 1).then_some(slot));
        (0..self.devices).flat_map(move |device| slots().map(move |slot| (device, slot)))
    }

    /// What may be given.
    fn is_to_be_had(&self, unit: (u32, Option<u32>), takes_over: bool) -> bool {
        // A share that is beyond those of now may be any of them.
        let is_it = |(device, slot, _): &Holding| {
            let is_share =
                slot.is_none_or(|slot| slot >= self.slots || self.slots == 1 || Some(slot) == unit.1);
            *device == unit.0 && is_share
        };
        let mut holders = self.held.iter().filter(|(held, _)| is_it(held));
        holders.all(|(held, _)| takes_over && self.dead.contains(&held.2))
    }

    /// How much the living have of it.
    fn used(&self, namespace: usize) -> usize {
        let is_used = |(held, of): &&(Holding, usize)| *of == namespace && !self.dead.contains(&held.2);
        self.held.iter().filter(is_used).count()
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Ask { owner, namespace, amount, takes_over } => {
                self.ask(owner, namespace, amount, takes_over)
            }
            Step::GiveBack { owner } => {
                let pid = self.owners[owner].pid();
                // It reads no devices, and knows of no namespaces.
                self.host.answers(&format!("deallocateAll --log none --owner {pid}"), "");
                self.held.retain(|(held, _)| held.2 != pid);
            }
            Step::Die { owner } => {
                let dead = std::mem::replace(&mut self.owners[owner], Process::start());
                self.dead.insert(dead.kill());
            }
            Step::Divide { slots } => {
                self.slots = slots;
                self.host.configure(&configuration(slots, self.limits));
            }
        }
        let held: BTreeSet<Holding> = self.held.iter().map(|(held, _)| *held).collect();
        assert_eq!(self.recorded(), held, "{step:?}");
    }

    fn recorded(&self) -> BTreeSet<Holding> {
        let held = held_in(&self.host.sandbox.file());
        held.iter().map(|held| (held.index, held.slot, held.pid)).collect()
    }

    fn ask(&mut self, owner: usize, namespace: usize, amount: usize, takes_over: bool) {
        let pid = self.owners[owner].pid();
        let form = if takes_over {
            format!("{amount} --enable-coordination-mode")
        } else {
            format!("allocate {amount}")
        };
        let line = format!("{form} --log none --namespace {} --owner {pid}", NAMESPACES[namespace]);
        let (end, stdout, stderr) = Running::start(self.host.program(&line)).end();
        let there_are = self.units().filter(|unit| self.is_to_be_had(*unit, takes_over)).count();
        let is_within = self.limits.get(namespace).copied().flatten();
        let is_within = is_within.is_none_or(|limit| self.used(namespace) + amount <= limit);
        let expected = match (there_are >= amount, is_within) {
            (true, true) => 0,
            (true, false) => 6,
            (false, _) => 1,
        };
        assert_eq!(end, End::Exit(expected), "{line}: of {there_are}: {stderr}");
        assert_eq!(
            (stdout.is_empty(), stderr.is_empty()),
            (expected != 0, expected == 0),
            "{line}: {stderr}"
        );
        if expected != 0 {
            return;
        }
        let mut told: Vec<u32> = stdout.trim_end().split(',').map(|word| word.parse().unwrap()).collect();
        let before: BTreeSet<Holding> = self.held.iter().map(|(held, _)| *held).collect();
        let given: Vec<Holding> = self.recorded().difference(&before).copied().collect();
        for (index, slot, holder) in &given {
            assert!(*holder == pid && self.is_to_be_had((*index, *slot), takes_over), "{line}: {given:?}");
        }
        told.sort_unstable();
        // A device of which it has two shares is named once.
        let devices: BTreeSet<u32> = given.iter().map(|given| given.0).collect();
        assert!(devices.iter().eq(&told), "{line}: {given:?}, and {told:?} are told");
        assert_eq!(given.len(), amount, "{line}: {given:?}");
        if takes_over {
            self.held.retain(|(held, _)| !self.dead.contains(&held.2));
        }
        self.held.extend(given.into_iter().map(|given| (given, namespace)));
    }
}

/// A tenth of the cases of other models, since each starts a few dozen processes. (The macro of proptest would take
/// `PROPTEST_CASES` for this model alone.)
#[test]
fn whatever_is_asked_for_is_given_and_refused_as_the_model_says() {
    let default = ProptestConfig::default();
    let cases = default.cases / 10;
    let config = ProptestConfig { cases, failure_persistence: None, ..default };
    let limit = || prop::option::of(0..6_usize);
    let steps = prop::collection::vec(step(), 1..40);
    let outcome = TestRunner::new(config).run(
        &(1..5_u32, 1..4_u32, [limit(), limit()], steps),
        |(devices, slots, limits, steps)| {
            let mut world = World::new(devices, slots, limits);
            steps.iter().for_each(|step| world.take(step));
            Ok(())
        },
    );
    outcome.unwrap_or_else(|problem| panic!("{problem}"));
}
