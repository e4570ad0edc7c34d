//! `amd-smi`: AMD's newer tool. The JSON of its `list` is an array with one object per GPU.
//!
//! Its `gpu` numbers are rows, and can have gaps. It also reports KFD's numbers of the GPU and of its node, which give
//! HIP's order ([`amd::judge`]). Where KFD cannot be read, two more calls report models, memory and memory errors.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::device::PciAddress;
use crate::host::Host;
use crate::inventory::amd::{self, Listed, name, number};
use crate::inventory::answer::{Answer, Silence};
use crate::inventory::{Settings, sysfs};

const TOOL: &str = "amd-smi";
const LIST: [&str; 2] = ["list", "--json"];
const DETAILS: [&str; 4] = ["static", "--asic", "--vram", "--json"];
const ERRORS: [&str; 3] = ["metric", "--ecc", "--json"];

pub(super) fn read(host: &Host, settings: &Settings, limit: Duration) -> Answer {
    let since = Instant::now();
    let output = amd::run(TOOL, &LIST, settings, limit)?;
    let mut listed: Vec<Listed> = gpus(&amd::values(&output)?).filter_map(gpu).collect();
    let kfd = sysfs::nodes(host);
    let mut unknown = Vec::new();
    if kfd.is_err() && !listed.is_empty() {
        let left = || limit.saturating_sub(since.elapsed());
        let described = describe(&mut listed, settings, left());
        let counted = count_errors(&mut listed, settings, left());
        unknown.extend(described.err().map(|why| format!("models and memory are not known: {why}")));
        unknown.extend(counted.err().map(|why| format!("errors of the memory are not known: {why}")));
    }
    let mut found = amd::judge(TOOL, &output, listed, &kfd)?;
    found.warnings.extend(unknown.into_iter().map(|what| format!("{TOOL}: {what}")));
    Ok(found)
}

/// The objects that each describe a GPU. They are in an array, since ROCm 7 below `gpu_data`.
fn gpus(values: &[Value]) -> impl Iterator<Item = &Value> {
    values.iter().flat_map(entries).filter(|entry| entry.get("gpu").is_some())
}

fn entries(value: &Value) -> &[Value] {
    match value.get("gpu_data").unwrap_or(value) {
        Value::Array(entries) => entries,
        single => std::slice::from_ref(single),
    }
}

fn gpu(entry: &Value) -> Option<Listed> {
    let row = number(entry.get("gpu")?)?;
    Some(Listed {
        label: format!("gpu {row}"),
        pci: address(entry),
        gpu_id: entry.get("kfd_id").and_then(number),
        node: entry.get("node_id").and_then(number),
        ..Listed::default()
    })
}

/// The address as KFD gives it, with the partition as the function: some versions give all partitions of a card the
/// card's own address.
fn address(entry: &Value) -> Option<PciAddress> {
    let card: PciAddress = entry.get("bdf")?.as_str()?.trim().parse().ok()?;
    let partition = entry.get("partition_id").and_then(number).and_then(|number| u8::try_from(number).ok());
    Some(PciAddress { function: card.function | partition.filter(|it| *it < 8).unwrap_or(0), ..card })
}

fn describe(listed: &mut [Listed], settings: &Settings, limit: Duration) -> Result<(), Silence> {
    let output = amd::run(TOOL, &DETAILS, settings, limit)?;
    let values = amd::values(&output)?;
    let mut details: HashMap<String, Details> = gpus(&values).filter_map(details).collect();
    for gpu in listed {
        let Details { model, memory_mib } = details.remove(&gpu.label).unwrap_or_default();
        (gpu.name, gpu.memory_mib) = (model, memory_mib);
    }
    Ok(())
}

fn count_errors(listed: &mut [Listed], settings: &Settings, limit: Duration) -> Result<(), Silence> {
    let values = amd::values(&amd::run(TOOL, &ERRORS, settings, limit)?)?;
    let mut counts: HashMap<String, u64> = gpus(&values).filter_map(errors).collect();
    listed.iter_mut().for_each(|gpu| gpu.uncorrected_errors = counts.remove(&gpu.label));
    Ok(())
}

/// The errors of all blocks of a GPU since the driver was loaded.
fn errors(entry: &Value) -> Option<(String, u64)> {
    let count = entry.pointer("/ecc/total_uncorrectable_count").and_then(number)?;
    Some((gpu(entry)?.label, count))
}

#[derive(Debug, Default, PartialEq)]
struct Details {
    model: Option<String>,
    memory_mib: Option<u64>,
}

fn details(entry: &Value) -> Option<(String, Details)> {
    let gpu = gpu(entry)?;
    let model = entry.pointer("/asic/market_name").and_then(name);
    Some((gpu.label, Details { model, memory_mib: entry.get("vram").and_then(memory) }))
}

/// The memory in MiB, which the tool calls MB. In ROCm 6.0 it is a number, later a string, then an object with a unit.
fn memory(vram: &Value) -> Option<u64> {
    let size = vram.get("size").or_else(|| vram.get("vram_size_mb"))?;
    let size = size.get("value").unwrap_or(size);
    number(size).or_else(|| size.as_str()?.strip_suffix("MB")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<Value> {
        serde_json::Deserializer::from_str(text).into_iter().map(Result::unwrap).collect()
    }

    /// Label, address, KFD's numbers.
    fn summary(text: &str) -> String {
        let word = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let line = |gpu: Listed| {
            let pci = gpu.pci.map_or("-".to_owned(), |pci| pci.to_string());
            format!("{} {pci} {} {}", gpu.label, word(gpu.gpu_id), word(gpu.node))
        };
        gpus(&values(text)).filter_map(gpu).map(line).collect::<Vec<_>>().join(", ")
    }

    #[test]
    #[rustfmt::skip] // a table
    fn lists() {
        for (case, text, expected) in [
            ("ROCm 6",        r#"[{"gpu": 0, "bdf": "0000:c4:00.0", "uuid": "00ff1586-0000-1000-8000-000000000000", "kfd_id": 42905, "node_id": 1, "partition_id": 0}]"#,
                              "gpu 0 0000:c4:00.0 42905 1"),
            ("ROCm 5.7",      r#"[{"gpu": 0, "bdf": "0000:c4:00.0", "uuid": "00ff1586-0000-1000-8000-000000000000"}]"#, "gpu 0 0000:c4:00.0 - -"),
            ("ROCm 7",        r#"{"gpu_data": [{"gpu": 0, "bdf": "0000:23:00.0", "kfd_id": 1, "node_id": 2, "partition_id": 0}]}"#, "gpu 0 0000:23:00.0 1 2"),
            ("gaps",          r#"[{"gpu": 0, "bdf": "0000:23:00.0"}, {"gpu": 3, "bdf": "0000:26:00.0"}]"#, "gpu 0 0000:23:00.0 - -, gpu 3 0000:26:00.0 - -"),
            ("several",       r#"[{"gpu": 0, "bdf": "0000:23:00.0"}] [{"gpu": 1, "bdf": "0000:26:00.0"}]"#, "gpu 0 0000:23:00.0 - -, gpu 1 0000:26:00.0 - -"),
            ("partitions",    r#"[{"gpu": 0, "bdf": "0000:05:00.0", "partition_id": 0}, {"gpu": 1, "bdf": "0000:05:00.0", "partition_id": 1}, {"gpu": 2, "bdf": "0000:05:00.2", "partition_id": 2}]"#,
                              "gpu 0 0000:05:00.0 - -, gpu 1 0000:05:00.1 - -, gpu 2 0000:05:00.2 - -"),
            ("text for an address", r#"[{"gpu": 0, "bdf": "AMDSMI_STATUS_NO_PERM - Permission Denied", "kfd_id": "N/A", "node_id": "N/A", "partition_id": "N/A"}]"#, "gpu 0 - - -"),
            ("not in its groups", r#"[{"gpu": 0, "bdf": "N/A", "uuid": "N/A", "kfd_id": 42905, "node_id": 1}]"#, "gpu 0 - 42905 1"),
            ("one object",    r#"{"gpu": 0, "bdf": "0000:23:00.0"}"#, "gpu 0 0000:23:00.0 - -"),
            ("other objects", r#"[{"cpu": 0}, 1, "x", null] {"error": "x"} 7"#, ""),
            ("no row",        r#"[{"gpu": "N/A", "bdf": "0000:23:00.0"}]"#, ""),
            ("empty",         "[]", ""),
        ] {
            assert_eq!(summary(text), expected, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn models_and_memory() {
        for (case, text, model, memory_mib) in [
            ("ROCm 6.0", r#"[{"gpu": 0, "asic": {"market_name": "MI300X", "vendor_id": 4098}, "vram": {"vram_type": "HBM", "vram_vendor": "N/A", "vram_size_mb": 196592}}]"#, Some("MI300X"), Some(196_592)),
            ("ROCm 6.2", r#"[{"gpu": 0, "asic": {"market_name": "MI300X"}, "vram": {"type": "HBM", "size": "24560 MB"}}]"#, Some("MI300X"), Some(24_560)),
            ("ROCm 7",   r#"{"gpu_data": [{"gpu": 0, "asic": {"market_name": "AMD Instinct MI210"}, "vram": {"type": "HBM2", "size": {"value": 65520, "unit": "MB"}}}]}"#, Some("AMD Instinct MI210"), Some(65_520)),
            ("text",     r#"[{"gpu": 0, "asic": "N/A", "vram": {"size": "N/A"}}]"#, None, None),
            ("a number for a name", r#"[{"gpu": 0, "asic": {"market_name": "0x74a0"}}]"#, None, None),
        ] {
            let values = values(text);
            let found: Vec<_> = gpus(&values).filter_map(details).collect();
            let expected = Details { model: model.map(str::to_owned), memory_mib };
            assert_eq!(found, [("gpu 0".to_owned(), expected)], "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn uncorrected_errors() {
        for (case, text, count) in [
            ("ROCm 6", r#"[{"gpu": 0, "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 2, "cache_correctable_count": 0, "cache_uncorrectable_count": 0}}]"#, Some(2)),
            ("ROCm 7", r#"{"gpu_data": [{"gpu": 0, "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0, "total_deferred_count": 1}}]}"#, Some(0)),
            ("text",   r#"[{"gpu": 0, "ecc": {"total_correctable_count": "N/A", "total_uncorrectable_count": "N/A"}}]"#, None),
            ("no ECC", r#"[{"gpu": 0, "ecc": "N/A"}]"#, None),
        ] {
            let found: Vec<_> = gpus(&values(text)).filter_map(errors).collect();
            assert_eq!(found, count.map(|count| ("gpu 0".to_owned(), count)).into_iter().collect::<Vec<_>>(), "{case}");
        }
    }
}
