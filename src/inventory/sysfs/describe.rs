//! Turns the nodes of the KFD topology into devices.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::device::{Device, Health, Identity, PciAddress, Use};
use crate::inventory::health;
use crate::inventory::sysfs::drm::Drm;
use crate::inventory::sysfs::gpu::Gpu;
use crate::inventory::sysfs::properties::{self, Properties};
use crate::inventory::sysfs::{Node, text};
use crate::plain;

/// The kernel's name for a chip without a known name.
const NAMELESS: &str = "ip discovery";

/// What the nodes' devices are read from.
pub(super) struct Reader<'a> {
    /// The directory of the nodes.
    pub(super) directory: &'a Path,
    pub(super) drm: Drm<'a>,
    /// By [`Gpu::id`].
    pub(super) uses: Option<HashMap<u64, Vec<Use>>>,
}

/// Domain, bus and device: the partitions of a card differ only in the function.
type Slot = (u32, u8, u8);

fn slot(address: PciAddress) -> Slot {
    (address.domain, address.bus, address.device)
}

/// What the DRM driver knows about a card, which applies to all of its partitions.
#[derive(Default)]
struct Card {
    partitions: usize,
    /// The kernel does not say which partition's memory failed.
    uncorrected_errors: Option<u64>,
}

impl Reader<'_> {
    /// In the order of the nodes.
    pub(super) fn nodes(&self, gpus: &[Gpu]) -> Vec<Node> {
        let addresses: Vec<_> = gpus.iter().map(|gpu| self.address(gpu)).collect();
        let cards = self.cards(gpus, &addresses);
        let node = |(index, (gpu, address)): (u32, (&Gpu, &Option<PciAddress>))| Node {
            number: gpu.number,
            gpu_id: gpu.id,
            device: self.device(index, gpu, *address, address.and_then(|it| cards.get(&slot(it)))),
        };
        (0..).zip(gpus.iter().zip(&addresses)).map(node).collect()
    }

    /// Reads the errors of each card once, since each read makes the kernel ask the hardware.
    fn cards(&self, gpus: &[Gpu], addresses: &[Option<PciAddress>]) -> HashMap<Slot, Card> {
        let mut cards: HashMap<Slot, Card> = HashMap::new();
        for (gpu, address) in gpus.iter().zip(addresses) {
            let Some(address) = address else { continue };
            let card = cards.entry(slot(*address)).or_default();
            card.partitions += 1;
            let minor = gpu.properties.as_ref().ok().and_then(|properties| properties.render_minor);
            card.uncorrected_errors = card.uncorrected_errors.or_else(|| self.drm.uncorrected_errors(minor?));
        }
        cards
    }

    fn address(&self, gpu: &Gpu) -> Option<PciAddress> {
        let properties = gpu.properties.as_ref().ok()?;
        let of_drm = || properties.render_minor.and_then(|minor| self.drm.address(minor));
        properties.address(properties.domain.or_else(|| Some(of_drm()?.domain)).unwrap_or(0))
    }

    fn device(&self, index: u32, gpu: &Gpu, pci: Option<PciAddress>, card: Option<&Card>) -> Device {
        let device = Device::new(index, Identity { pci, ..Identity::default() });
        let properties = match &gpu.properties {
            Ok(properties) => properties,
            Err(problem) => return Device { health: Health::Sick(problem.clone()), ..device },
        };
        let minor = properties.render_minor;
        let is_alone = card.is_some_and(|card| card.partitions == 1);
        let uncorrected_errors = card.and_then(|card| card.uncorrected_errors);
        let nameless = pci.is_none().then(|| "KFD does not tell its PCI address".to_owned());
        let why = nameless.or_else(|| health::of_errors(uncorrected_errors));
        // The DRM driver counts the memory of the whole card.
        let of_card = |attribute| self.drm.bytes(minor.filter(|_| is_alone)?, attribute);
        let total = self.local_bytes(gpu.number).or_else(|| of_card("mem_info_vram_total"));
        Device {
            name: self.name(gpu.number, properties),
            memory_mib: total.map(|bytes| bytes >> 20),
            memory_used_mib: of_card("mem_info_vram_used").map(|bytes| bytes >> 20),
            minor,
            nodes: minor.map(|minor| self.drm.nodes(minor)).unwrap_or_default(),
            health: why.map_or(Health::Sound, Health::Sick),
            processes: self.processes(gpu.id),
            uncorrected_errors,
            unique_id: properties.unique_id,
            ..device
        }
    }

    fn name(&self, number: u32, properties: &Properties) -> Option<String> {
        let chip = || text(&self.directory.join(number.to_string()).join("name")).ok();
        let product = properties.render_minor.and_then(|minor| self.drm.product(minor));
        let name = product.or_else(|| chip().filter(|name| !name.is_empty() && name != NAMELESS));
        name.or_else(|| properties.architecture.clone()).map(|name| plain::masked(&name))
    }

    fn local_bytes(&self, number: u32) -> Option<u64> {
        let banks = fs::read_dir(self.directory.join(number.to_string()).join("mem_banks")).ok()?;
        let bytes =
            |bank: fs::DirEntry| properties::local_bytes(&text(&bank.path().join("properties")).ok()?);
        let total: u64 = banks.flatten().filter_map(bytes).sum();
        Some(total).filter(|total| *total > 0)
    }

    fn processes(&self, gpu: Option<u64>) -> Option<Vec<Use>> {
        let uses = self.uses.as_ref()?;
        Some(uses.get(&gpu?).cloned().unwrap_or_default())
    }
}
