//! What happens, and on which host: by chance.

use proptest::prelude::*;

use super::{STRANGER, uuid};
use crate::device::{Device, Instance, Inventory};

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Asks for units, for itself. Two in three calls take over what the dead had.
    Allocate {
        pid: u32,
        amount: usize,
        takes_over: bool,
        packs: bool,
    },
    GiveBack {
        pid: u32,
    },
    Reclaim,
    Die {
        pid: u32,
    },
    /// The script appends its line, as it does to what it sees free.
    Script {
        index: u32,
        pid: u32,
    },
    /// A line of ours, of an owner that cannot be seen from here.
    Stranger {
        index: u32,
        pid: u32,
    },
    /// A line that nobody understands.
    Damage {
        index: u32,
    },
    Drain {
        index: u32,
    },
    Undrain {
        index: u32,
    },
    /// Whoever configures the host has it given in so many shares from now on.
    Divide {
        index: u32,
        slots: Option<u32>,
    },
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let (pid, index) = (|| 1..12_u32, || 0..4_u32);
    prop_oneof![
        16 => (pid(), 1..6_usize, prop::bool::weighted(0.6), any::<bool>()).prop_map(
            |(pid, amount, takes_over, packs)| Step::Allocate { pid, amount, takes_over, packs }
        ),
        6 => pid().prop_map(|pid| Step::GiveBack { pid }),
        2 => Just(Step::Reclaim),
        6 => pid().prop_map(|pid| Step::Die { pid }),
        3 => (index(), pid()).prop_map(|(index, pid)| Step::Script { index, pid }),
        // These two are for ever.
        1 => (index(), STRANGER..STRANGER + 3).prop_map(|(index, pid)| Step::Stranger { index, pid }),
        1 => index().prop_map(|index| Step::Damage { index }),
        2 => index().prop_map(|index| Step::Drain { index }),
        4 => index().prop_map(|index| Step::Undrain { index }),
        4 => (index(), prop::option::weighted(0.8, 2..6_u32)).prop_map(|(index, slots)| Step::Divide { index, slots }),
    ]
}

/// Of a device, and of its instances where it has some.
type Shares = (Option<u32>, Option<Vec<Option<u32>>>);

pub(super) fn inventory() -> impl Strategy<Value = Inventory> {
    let slots = || prop::option::of(2..5_u32);
    let instances = prop::option::weighted(0.3, prop::collection::vec(slots(), 1..4));
    prop::collection::vec((slots(), instances), 1..5).prop_map(|devices| {
        let device = |(index, (slots, instances)): (u32, Shares)| {
            let mut device = Device::new(index, uuid(format!("GPU-{index}")));
            let instance = |(at, slots)| Instance {
                uuid: Some(format!("MIG-{index}-{at}")),
                slots,
                ..Instance::default()
            };
            device.instances = instances.map(|all| all.into_iter().enumerate().map(instance).collect());
            device.slots = slots.filter(|_| device.instances.is_none());
            device
        };
        let devices = (0..).zip(devices).map(device).collect();
        Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true }
    })
}
