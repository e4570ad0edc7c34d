//! `rocm-smi`: AMD's older tool, which prints JSON from ROCm 4 to 7: `{"card0": {...}, ...}`, with strings as values.
//!
//! * Keys have been renamed and recased, so they are compared without case, and a value is looked up by all its keys.
//! * The number in `cardN` is a row or a DRM card, never HIP's index ([`amd::judge`]).

use std::time::Duration;

use serde_json::{Map, Value};

use crate::host::Host;
use crate::inventory::amd::{self, Listed, name, number};
use crate::inventory::answer::Answer;
use crate::inventory::{Settings, sysfs};

const TOOL: &str = "rocm-smi";
/// All of these options are older than ROCm 4.
const QUERY: [&str; 6] =
    ["--showbus", "--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--json"];

pub(super) fn read(host: &Host, settings: &Settings, limit: Duration) -> Answer {
    let output = amd::run(TOOL, &QUERY, settings, limit)?;
    let listed = cards(&amd::values(&output)?);
    amd::judge(TOOL, &output, listed, &sysfs::nodes(host))
}

fn cards(values: &[Value]) -> Vec<Listed> {
    let cards = values.iter().filter_map(Value::as_object).flatten();
    cards.filter_map(|(label, value)| card(label, value.as_object()?)).collect()
}

/// `None` for an entry that is not a card: `system` has the driver's version.
fn card(label: &str, fields: &Map<String, Value>) -> Option<Listed> {
    let digits = label.strip_prefix("card")?;
    digits.parse::<u32>().ok()?;
    let mib = |key| Some(number(field(fields, key)?)? >> 20);
    let named = ["Card Series", "Device Name", "Card Model"];
    Some(Listed {
        label: label.to_owned(),
        pci: field(fields, "PCI Bus").and_then(Value::as_str).and_then(|address| address.trim().parse().ok()),
        gpu_id: field(fields, "GUID").and_then(number),
        node: field(fields, "Node ID").and_then(number),
        unique_id: field(fields, "Unique ID").and_then(hexadecimal),
        name: named.iter().find_map(|key| name(field(fields, key)?)),
        memory_mib: mib("VRAM Total Memory (B)"),
        memory_used_mib: mib("VRAM Total Used Memory (B)"),
        // Not in its JSON: `--showrasinfo` prints a table.
        uncorrected_errors: None,
    })
}

fn field<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
}

/// With or without `0x`, depending on the version.
fn hexadecimal(value: &Value) -> Option<u64> {
    let text = value.as_str()?;
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB_12: u64 = 12_288;

    fn parsed(text: &str) -> Vec<Listed> {
        cards(&serde_json::Deserializer::from_str(text).into_iter().map(Result::unwrap).collect::<Vec<_>>())
    }

    #[test]
    #[rustfmt::skip] // a table
    fn one_card_over_the_versions() {
        for (case, text, name, gpu_id, unique_id) in [
            ("ROCm 4", r#"{"card0": {"GPU ID": "0x73df", "Unique ID": "N/A", "PCI Bus": "0000:07:00.0", "VRAM Total Memory (B)": "12884901888",
                "VRAM Total Used Memory (B)": "1073741824", "Card series": "0x1002", "Card model": "0x1002", "Card SKU": "67XA6S"}, "system": {"Driver version": "5.13"}}"#,
                None, None, None),
            ("ROCm 5", r#"{"card0": {"GPU ID": "0x73df", "Unique ID": "0x1122334455667788", "PCI Bus": "0000:07:00.0", "VRAM Total Memory (B)": "12884901888",
                "VRAM Total Used Memory (B)": "1073741824", "Card series": "Navi 22 [Radeon RX 6700]", "Card model": "0x6601", "Card vendor": "AMD"}, "system": {}}"#,
                Some("Navi 22 [Radeon RX 6700]"), None, Some(0x1122_3344_5566_7788)),
            ("ROCm 6", r#"{"card0": {"Device Name": "Navi 22", "Device ID": "0x73df", "Device Rev": "0xc1", "Subsystem ID": "0x6601", "GUID": "45412", "Unique ID": "0x0",
                "PCI Bus": "0000:07:00.0", "VRAM Total Memory (B)": "12884901888", "VRAM Total Used Memory (B)": "1073741824"}}"#,
                Some("Navi 22"), Some(45_412), Some(0)),
            ("ROCm 7", r#"{"card0": {"Unique ID": "1122334455667788", "PCI Bus": "0000:07:00.0", "Card Series": "AMD Radeon RX 6700", "Card Model": "0x73df",
                "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "Card SKU": "67XA6S", "Subsystem ID": "0x6601", "Device Rev": "0xc1", "Node ID": "1", "GUID": "45412",
                "GFX Version": "gfx1031", "VRAM Total Memory (B)": "12884901888", "VRAM Total Used Memory (B)": "1073741824"}}"#,
                Some("AMD Radeon RX 6700"), Some(45_412), Some(0x1122_3344_5566_7788)),
        ] {
            let cards = parsed(text);
            let [card] = &cards[..] else { panic!("{case}: {cards:?}") };
            assert_eq!((card.label.as_str(), card.pci), ("card0", "0000:07:00.0".parse().ok()), "{case}");
            assert_eq!((card.name.as_deref(), card.gpu_id, card.unique_id), (name, gpu_id, unique_id), "{case}");
            assert_eq!((card.memory_mib, card.memory_used_mib), (Some(GIB_12), Some(1024)), "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn text_where_a_value_should_be_loses_that_value() {
        for (case, text, count, pci) in [
            ("no address",     r#"{"card0": {"PCI Bus": "None", "VRAM Total Memory (B)": "N/A"}}"#, 1, None),
            ("no fields",      r#"{"card7": {}}"#,                                                  1, None),
            ("a number",       r#"{"card0": 1}"#,                                                   0, None),
            ("no card",        r#"{"system": {"PCI Bus": "0000:07:00.0"}, "cardinal": {}, "card": {}}"#, 0, None),
            ("a list",         r#"[{"card0": {}}]"#,                                                0, None),
            ("another case",   r#"{"card0": {"PCI bus": "0001:C7:00.1"}}"#,                         1, Some("0001:c7:00.1")),
            ("in two values",  r#"{"card0": {"PCI Bus": "0000:07:00.0"}} {"card2": {}}"#,           2, Some("0000:07:00.0")),
        ] {
            let cards = parsed(text);
            assert_eq!(cards.len(), count, "{case}");
            let address = cards.first().and_then(|card| card.pci).map(|pci| pci.to_string());
            assert_eq!(address.as_deref(), pci, "{case}");
        }
    }
}
