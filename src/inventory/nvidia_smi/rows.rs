//! The grammar of what `nvidia-smi` prints for our query: a line per card, `INDEX, UUID, PCI ADDRESS, NAME, MEMORY` and
//! the optional fields, between sentences that are not rows.
//!
//! A field can have a non-value such as `[N/A]`; then only that field is unknown. A line that is neither a row nor one of
//! the sentences below makes the whole output worthless: a program that is not `nvidia-smi` could have printed it.

use std::collections::HashSet;

use crate::device::{self, Device, Health, Identity, PciAddress};
use crate::inventory::answer::Found;
use crate::inventory::health;
use crate::inventory::nvidia_smi::card::{Card, is_non_value, number};
use crate::inventory::nvidia_smi::fields::Extra;
use crate::inventory::text::quote;
use crate::plain;

const NONE: &str = "No devices were found";
const LOST: &str = "Unable to determine the device handle for ";
/// Non-values that are about the card and not about the field.
const GONE: &str = "[GPU is lost]";
const SICK: &str = "[GPU requires reset]";
/// Few, since the reader of our standard error may read it only after our exit, and a pipe holds 64 KiB.
const MOST_WARNINGS: usize = 8;

/// What was printed.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// One per row.
    cards: Vec<Card>,
    pub(super) lost: Vec<Lost>,
    warnings: Vec<String>,
    /// Whether it says that there is no device.
    pub(super) none: bool,
}

/// A card that the driver knows but cannot reach.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost {
    index: Option<u32>,
    pci: PciAddress,
    why: String,
}

/// `extras` were asked for.
pub(super) fn parse(stdout: &str, extras: &[Extra]) -> Result<Report, String> {
    let mut report = Report::default();
    for line in stdout.lines().filter(|line| !line.trim().is_empty()) {
        if line == NONE {
            report.none = true;
        } else if let Some(lost) = lost(line) {
            report.lost.push(lost);
        } else if line.starts_with("WARNING: ") {
            report.warnings.push(quote(line));
        } else {
            let card = row(line, extras);
            report.cards.push(
                card.ok_or_else(|| format!("it printed something that is not a card: `{}`", quote(line)))?,
            );
        }
    }
    if report.none && !report.cards.is_empty() {
        return Err(format!("it printed `{NONE}` and cards"));
    }
    Ok(report)
}

fn row(line: &str, extras: &[Extra]) -> Option<Card> {
    let mut fields = line.splitn(4, ", ");
    let (index, uuid, pci) = (fields.next()?, fields.next()?, fields.next()?);
    // A name can contain the separator, so the fields after it are counted from the end.
    let mut last = fields.next()?.rsplitn(extras.len() + 2, ", ").collect::<Vec<_>>().into_iter().rev();
    let (name, memory, told) = (last.next()?, last.next()?, last.collect::<Vec<_>>());
    if !index.bytes().all(|byte| byte.is_ascii_digit()) || !is_uuid(uuid) || told.len() != extras.len() {
        return None;
    }
    let identity = Identity { uuid: device::uuid(uuid), pci: pci.parse().ok(), id: None };
    let mut card = Card::new(Device {
        name: (!is_non_value(name)).then(|| plain::masked(name)),
        memory_mib: number(memory)?,
        ..Device::new(index.parse().ok()?, identity)
    });
    for (extra, text) in extras.iter().zip(&told) {
        extra.read(text, &mut card)?;
    }
    card.device.health = health(&card.device, &[&[uuid, pci, name, memory], &told[..]].concat());
    Some(card)
}

/// A UUID as the driver writes it, or for a card that cannot be read, question marks or a non-value.
fn is_uuid(text: &str) -> bool {
    text.starts_with("GPU-") || text.starts_with("MIG-") || is_non_value(text)
}

fn health(device: &Device, fields: &[&str]) -> Health {
    if fields.contains(&GONE) {
        return Health::Lost(format!("nvidia-smi says {GONE}"));
    }
    if fields.contains(&SICK) {
        return Health::Sick(format!("nvidia-smi says {SICK}"));
    }
    if device.identity.is_empty() {
        return Health::Sick(health::NAMELESS.to_owned());
    }
    let of_errors = health::of_errors(device.uncorrected_errors);
    let why = of_errors.or_else(|| health::of_mode(device.compute_mode.as_deref()));
    why.map_or(Health::Sound, Health::Sick)
}

/// Its spellings over the years: `GPU 0000:02:00.0: WHY`, `GPU0000:17:00.0: WHY`, `GPU1: 0000:34:00.0: WHY`.
fn lost(line: &str) -> Option<Lost> {
    let rest = line.strip_prefix(LOST)?.strip_prefix("GPU")?.trim_start();
    let (first, after) = rest.split_once(": ").unwrap_or((rest, ""));
    let is_index = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    let (address, why) =
        if is_index { after.split_once(": ").unwrap_or((after, "")) } else { (first, after) };
    let why = if why.is_empty() { "it cannot be reached" } else { why.trim() };
    let index = if is_index { first.parse().ok() } else { None };
    Some(Lost { index, pci: address.trim_end_matches(':').parse().ok()?, why: quote(why) })
}

impl Report {
    /// The cards in index order, including lost ones, which are shown but not granted.
    pub(super) fn found(self) -> Found {
        let tells_instances = self.lost.is_empty() && self.cards.iter().all(|card| card.is_divided.is_some());
        let driver_version = self.cards.iter().find_map(|card| card.driver_version.clone());
        let mut devices: Vec<Device> = self.cards.into_iter().map(Card::described).collect();
        let of_lost = self.lost.iter().map(|lost| format!("GPU {}: {}", lost.pci, lost.why));
        let of_cards = devices.iter().filter_map(health::warning);
        let warnings = abridged(self.warnings.into_iter().chain(of_lost).chain(of_cards).collect());
        for lost in self.lost {
            add(&mut devices, lost);
        }
        devices.sort_by_key(|device| device.index);
        Found { devices, driver_version, warnings, tells_instances }
    }
}

fn abridged(mut warnings: Vec<String>) -> Vec<String> {
    let more = warnings.len().saturating_sub(MOST_WARNINGS);
    warnings.truncate(MOST_WARNINGS);
    if more > 0 {
        warnings.push(format!("and {more} lines more"));
    }
    warnings.into_iter().map(|line| format!("nvidia-smi: {line}")).collect()
}

/// Adds a lost card. The driver no longer counts it, or its index is missing in the count: it gets an index that no other
/// card has.
fn add(devices: &mut Vec<Device>, lost: Lost) {
    let health = Health::Lost(lost.why);
    if let Some(device) = devices.iter_mut().find(|device| device.identity.pci == Some(lost.pci)) {
        device.health = health;
        return;
    }
    let taken: HashSet<u32> = devices.iter().map(|device| device.index).collect();
    let Some(index) = lost.index.into_iter().chain(0..).find(|index| !taken.contains(index)) else { return };
    let identity = Identity { uuid: None, pci: Some(lost.pci), id: None };
    devices.push(Device { health, ..Device::new(index, identity) });
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "0, GPU-1-a, 00000000:3B:00.0, NVIDIA L4, 23034\n";

    fn card(line: &str) -> Device {
        let mut found = parse(line, &[]).expect(line).found();
        assert_eq!(found.devices.len(), 1, "{line}");
        found.devices.remove(0)
    }

    #[test]
    fn a_row_is_read_whole() {
        let identity =
            Identity { uuid: Some("GPU-1-a".to_owned()), pci: "0000:3b:00.0".parse().ok(), id: None };
        let expected = Device {
            name: Some("NVIDIA L4".to_owned()),
            memory_mib: Some(23_034),
            ..Device::new(0, identity)
        };
        assert_eq!(card(ROW), expected);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_bad_field_loses_itself_and_not_the_row() {
        for (case, line, uuid, pci, name, memory, is_sound) in [
            ("a comma in the name",    "0, GPU-1, 0000:01:00.0, A, B, 16",                     true,  true,  Some("A, B"),            Some(16), true),
            ("a bracket in the name",  "0, GPU-1, 0000:01:00.0, A [B/C] (rev a1), 16",         true,  true,  Some("A [B/C] (rev a1)"), Some(16), true),
            ("an escape in the name",  "0, GPU-1, 0000:01:00.0, A\u{1b}[2J, 16",               true,  true,  Some("A?[2J"),           Some(16), true),
            ("no name",                "0, GPU-1, 0000:01:00.0, [N/A], 16",                    true,  true,  None,                    Some(16), true),
            ("no memory",              "0, GPU-1, 0000:01:00.0, A, [N/A]",                     true,  true,  Some("A"),               None,     true),
            ("memory not supported",   "0, GPU-1, 0000:01:00.0, A, [Not Supported]",           true,  true,  Some("A"),               None,     true),
            ("unknown memory",         "0, GPU-1, 0000:01:00.0, A, [Unknown Error]",           true,  true,  Some("A"),               None,     true),
            ("a placeholder",          "0, GPU-????????-????-????-????-????????????, 0000:01:00.0, A, 16", false, true, Some("A"),    Some(16), true),
            ("an unknown UUID",        "0, [Unknown Error], 0000:01:00.0, A, 16",              false, true,  Some("A"),               Some(16), true),
            ("an unknown address",     "0, GPU-1, [Unknown Error], A, 16",                     true,  false, Some("A"),               Some(16), true),
            ("no identity",            "0, [N/A], [N/A], A, 16",                               false, false, Some("A"),               Some(16), false),
            ("a card that needs care", "0, GPU-1, 0000:01:00.0, A, [GPU requires reset]",      true,  true,  Some("A"),               None,     false),
            ("a lost card's row",      "0, [GPU is lost], 0000:01:00.0, [GPU is lost], [GPU is lost]", false, true, None,            None,     false),
        ] {
            let card = card(line);
            let identity = &card.identity;
            assert_eq!((identity.uuid.is_some(), identity.pci.is_some()), (uuid, pci), "{case}");
            assert_eq!((card.name.as_deref(), card.memory_mib), (name, memory), "{case}");
            assert_eq!(card.health == Health::Sound, is_sound, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn rejects() {
        for (case, line) in [
            ("a sentence",         "Failed to initialize NVML: Unknown Error"),
            ("a sentence of five", "Unable, to, determine, the, handle"),
            ("a table",            "+-----------------------------------------+"),
            ("a header",           "index, uuid, pci.bus_id, name, memory.total [MiB]"),
            ("too few fields",     "0, GPU-1, 0000:01:00.0, A"),
            ("another separator",  "0,GPU-1,0000:01:00.0,A,16"),
            ("a signed index",     "+0, GPU-1, 0000:01:00.0, A, 16"),
            ("no index",           ", GPU-1, 0000:01:00.0, A, 16"),
            ("a huge index",       "4294967296, GPU-1, 0000:01:00.0, A, 16"),
            ("shifted columns",    "0, NVIDIA L4, GPU-1, 0000:01:00.0, 16"),
            ("a unit",             "0, GPU-1, 0000:01:00.0, A, 16 MiB"),
            ("empty memory",       "0, GPU-1, 0000:01:00.0, A, "),
            ("a NUL",              "\0"),
            ("a lost card, which", "Unable to determine the device handle for GPU 1: Unknown Error"),
        ] {
            let problem = parse(&format!("{ROW}{line}\n"), &[]).expect_err(case);
            assert!(problem.contains(&quote(line)), "{case}: {problem}");
        }
        assert!(parse(&format!("{ROW}{NONE}\n"), &[]).is_err());
    }

    #[test]
    #[rustfmt::skip] // a table
    fn every_spelling_of_a_lost_card() {
        for (text, index, pci, why) in [
            ("GPU 0000:02:00.0: GPU is lost.  Reboot the system", None,    "0000:02:00.0", "GPU is lost.  Reboot the system"),
            ("GPU 0000:0B:00.0: Unknown Error",                   None,    "0000:0b:00.0", "Unknown Error"),
            ("GPU0000:17:00.0: Unknown Error",                    None,    "0000:17:00.0", "Unknown Error"),
            ("GPU1: 0000:34:00.0: Unknown Error",                 Some(1), "0000:34:00.0", "Unknown Error"),
            ("GPU 00000000:02:00.0:",                             None,    "0000:02:00.0", "it cannot be reached"),
        ] {
            let expected = Lost { index, pci: pci.parse().unwrap(), why: why.to_owned() };
            assert_eq!(lost(&format!("{LOST}{text}")), Some(expected), "{text}");
        }
    }

    /// Index, bus and whether it is sound.
    fn summary(stdout: &str) -> Vec<(u32, Option<u8>, bool)> {
        let summary =
            |card: &Device| (card.index, card.identity.pci.map(|pci| pci.bus), card.health == Health::Sound);
        parse(stdout, &[]).unwrap().found().devices.iter().map(summary).collect()
    }

    #[test]
    fn a_lost_card_stands_where_no_other_does() {
        let two = "0, GPU-1, 0000:01:00.0, A, 1\n2, GPU-3, 0000:03:00.0, A, 1\n";
        let lost = |what: &str| summary(&format!("{two}{LOST}{what}: Unknown Error\n"));
        let (first, third) = ((0, Some(1), true), (2, Some(3), true));
        assert_eq!(lost("GPU 0000:02:00.0"), [first, (1, Some(2), false), third]);
        assert_eq!(lost("GPU7: 0000:02:00.0"), [first, third, (7, Some(2), false)]);
        assert_eq!(lost("GPU2: 0000:02:00.0"), [first, (1, Some(2), false), third]);
        assert_eq!(lost("GPU 0000:03:00.0"), [first, (2, Some(3), false)]);
    }

    #[test]
    fn the_only_card_is_lost() {
        let report = parse(&format!("{LOST}GPU0: 0000:01:00.0: Unknown Error\n{NONE}\n"), &[]).unwrap();
        let found = report.found();
        assert_eq!(found.devices[0].health, Health::Lost("Unknown Error".to_owned()));
        assert_eq!(found.warnings, ["nvidia-smi: GPU 0000:01:00.0: Unknown Error"]);
    }

    #[test]
    fn warnings_are_kept_and_are_few() {
        let warning = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n";
        let found = parse(&format!("{}{ROW}", warning.repeat(9)), &[]).unwrap().found();
        assert_eq!(found.devices.len(), 1);
        assert_eq!(found.warnings.len(), 9);
        assert_eq!(found.warnings[8], "nvidia-smi: and 1 lines more");
    }

    const LINE: &str = "0, GPU-1, 0000:01:00.0, A, B, 16";

    /// The only card, with `fields` behind those that every version has.
    fn told(fields: &str) -> Option<Card> {
        parse(&format!("{LINE}, {fields}\n"), &Extra::ALL).ok().map(|mut report| report.cards.remove(0))
    }

    #[test]
    fn the_further_fields_are_read() {
        let card = told("5, P0, Exclusive_Process, 0, 550.54.15, Enabled").unwrap();
        assert_eq!((card.driver_version.as_deref(), card.is_divided), (Some("550.54.15"), Some(true)));
        let device = card.described();
        assert_eq!(
            (device.name.as_deref(), device.memory_mib, device.memory_used_mib),
            (Some("A, B"), Some(16), Some(5))
        );
        assert_eq!(
            (device.compute_mode.as_deref(), device.uncorrected_errors),
            (Some("Exclusive_Process"), Some(0))
        );
        assert_eq!((device.health, device.instances), (Health::Sound, Some(Vec::new())));
        let card = told("[N/A], [N/A], [N/A], [N/A], [N/A], [N/A]").unwrap();
        assert_eq!(
            (card.driver_version.as_deref(), card.is_divided),
            (None, Some(false)),
            "it cannot be divided"
        );
        let device = card.described();
        assert_eq!(
            (device.memory_used_mib, device.compute_mode, device.uncorrected_errors),
            (None, None, None)
        );
        assert_eq!((device.health, device.instances), (Health::Sound, None));
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_card_says_in_any_field_that_it_is_sick() {
        let sick = |why: &str| Health::Sick(why.to_owned());
        for (fields, health) in [
            ("[GPU requires reset], P0, Default, 0, 550.1, Disabled",             sick("nvidia-smi says [GPU requires reset]")),
            ("5, [GPU requires reset], Default, 0, 550.1, Disabled",              sick("nvidia-smi says [GPU requires reset]")),
            ("5, P0, [GPU requires reset], 0, 550.1, Disabled",                   sick("nvidia-smi says [GPU requires reset]")),
            ("5, P0, Default, [GPU requires reset], 550.1, Disabled",             sick("nvidia-smi says [GPU requires reset]")),
            ("5, P0, Default, 0, 550.1, [GPU requires reset]",                    sick("nvidia-smi says [GPU requires reset]")),
            ("5, P0, [GPU requires reset], 0, 550.1, [GPU is lost]",              Health::Lost("nvidia-smi says [GPU is lost]".to_owned())),
            ("5, P0, Default, 3, 550.1, Disabled",                                sick("uncorrected errors of its memory since the driver was loaded: 3")),
            ("5, P0, Prohibited, 0, 550.1, Disabled",                             sick("its compute mode is Prohibited")),
            ("5, [Unknown Error], [Unknown Error], [Unknown Error], 550.1, [Unknown Error]", Health::Sound),
        ] {
            assert_eq!(told(fields).expect(fields).device.health, health, "{fields}");
        }
    }

    #[test]
    fn what_is_no_value_of_a_further_field_is_no_row() {
        for fields in [
            "5 MiB, P0, Default, 0, 550.1, Disabled",
            "5, P0, Default, none, 550.1, Disabled",
            "5, P0, Default, 0, new, Disabled",
            "5, P0, Default, 0, 550.1, On",
            "P0, Default, 0, 550.1, Disabled",
            "5, 5, P0, Default, 0, 550.1, 0, Disabled",
        ] {
            assert!(told(fields).is_none(), "{fields}");
        }
        assert!(parse("0, GPU-1, 0000:01:00.0, A, 16\n", &Extra::ALL).is_err(), "it was asked for more");
    }

    #[test]
    #[rustfmt::skip] // a table
    fn whether_it_is_told_that_a_card_is_divided() {
        let off = "Unable to determine the device handle for GPU 0000:02:00.0: Unknown Error\n";
        for (case, mode, before, tells) in [
            ("divided",         "Enabled",         "",  true),
            ("not divided",     "Disabled",        "",  true),
            ("cannot be",       "[N/A]",           "",  true),
            ("unknown",         "[Unknown Error]", "",  false),
            ("beside a lost card", "Disabled",     off, false),
        ] {
            let report = parse(&format!("{before}{LINE}, {mode}\n"), &[Extra::MigMode]).expect(case);
            assert_eq!(report.found().tells_instances, tells, "{case}");
        }
        assert!(!parse(&format!("{LINE}\n"), &[]).unwrap().found().tells_instances);
    }

    #[test]
    fn a_sick_card_is_warned_of() {
        let rows = "0, GPU-1, 0000:01:00.0, A, [GPU requires reset]\n1, [N/A], [N/A], A, 16\n";
        let warnings = parse(rows, &[]).unwrap().found().warnings;
        assert_eq!(
            warnings,
            [
                "nvidia-smi: device 0 (0000:01:00.0) is sick: nvidia-smi says [GPU requires reset]",
                "nvidia-smi: device 1 is sick: neither its UUID nor its PCI address is known"
            ]
        );
    }
}
