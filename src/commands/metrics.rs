//! `gpu-coord status --prometheus`: what is held, as text for node_exporter's textfile collector.
//!
//! Format: the common subset of OpenMetrics 1.0 and Prometheus' older text format, so that both parsers accept it; names
//! end in their units. The families follow each other, each with its help, and `# EOF` comes last.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::eligible;
use super::quota::Sum;
use super::view::View;
use crate::device::{Device, Health};
use crate::plain;

const MIB: u64 = 1 << 20;

/// The families of metrics, one after the other.
#[derive(Debug, Default)]
struct Exposition {
    text: String,
}

impl Exposition {
    /// Begins a family of gauges.
    fn family(&mut self, name: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} gauge");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.join(","));
    }
}

/// A label's value: a model's name may contain anything.
fn escaped(value: &str) -> String {
    plain::masked(value).replace('\\', "\\\\").replace('"', "\\\"")
}

impl View<'_> {
    pub(super) fn as_metrics(&self, is_consistent: bool) -> String {
        let mut text = Exposition::default();
        self.devices(&mut text);
        self.units(&mut text);
        self.limits(&mut text);
        text.family("gpu_coord_record_consistent", "Whether the record was read under its lock.");
        let _ = writeln!(text.text, "gpu_coord_record_consistent {}", u64::from(is_consistent));
        text.text + "# EOF\n"
    }

    fn devices(&self, text: &mut Exposition) {
        let shown = eligible::shown(self.holdings.inventory, self.selection);
        let each = |text: &mut Exposition, name: &str, value: &dyn Fn(&Device) -> Option<u64>| {
            for (_, device) in &shown {
                if let Some(value) = value(device) {
                    text.sample(name, &[("index", &device.index.to_string()), ("id", &id(device))], value);
                }
            }
        };
        text.family("gpu_coord_device_info", "A device, with what is known of it.");
        for (_, device) in &shown {
            let (index, model) = (device.index.to_string(), device.name.clone().unwrap_or_default());
            let labels = [
                ("index", &*index),
                ("id", &id(device)),
                ("model", &*model),
                ("source", &self.holdings.inventory.source),
            ];
            text.sample("gpu_coord_device_info", &labels, 1);
        }
        text.family("gpu_coord_device_sound", "Whether a device can be relied on.");
        each(text, "gpu_coord_device_sound", &|device| Some(u64::from(device.health == Health::Sound)));
        text.family("gpu_coord_device_memory_bytes", "Memory of a device.");
        each(text, "gpu_coord_device_memory_bytes", &|device| Some(device.memory_mib? * MIB));
        text.family("gpu_coord_device_memory_used_bytes", "Memory of a device in use.");
        each(text, "gpu_coord_device_memory_used_bytes", &|device| Some(device.memory_used_mib? * MIB));
    }

    /// Counts by resource and state: a series for each unit would not be useful.
    fn units(&self, text: &mut Exposition) {
        let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for place in self.holdings.occupancy.places.iter().filter(|place| self.selection.takes(&place.unit)) {
            let resource = self.resources.name(&place.unit).unwrap_or_default();
            let state = self.holdings.state(place).name();
            *counts.entry((resource, state)).or_default() += 1;
        }
        text.family("gpu_coord_units", "Units of a resource in a state.");
        for ((resource, state), count) in counts {
            text.sample("gpu_coord_units", &[("resource", resource), ("state", state)], count);
        }
    }

    fn limits(&self, text: &mut Exposition) {
        for (whose, sums) in [("namespace", &self.sums.namespaces), ("user", &self.sums.users)] {
            let mut family = |name: &str, help: &str, value: &dyn Fn(&Sum) -> Option<u64>| {
                text.family(name, help);
                for ((who, resource), sum) in sums {
                    if let Some(value) = value(sum) {
                        text.sample(name, &[(whose, who), ("resource", resource)], value);
                    }
                }
            };
            let used = format!("gpu_coord_{whose}_used_units");
            family(&used, &format!("Units that the living owners of a {whose} hold."), &|sum| Some(sum.used));
            let limit = format!("gpu_coord_{whose}_limit_units");
            family(&limit, &format!("The quota of a {whose}."), &|sum| sum.limit);
        }
    }
}

/// What identifies the device permanently.
fn id(device: &Device) -> String {
    device.identity.name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_one_line() {
        let mut text = Exposition::default();
        text.sample("x", &[("model", "a\"b\\c\nd\u{1b}")], 7);
        assert_eq!(text.text, "x{model=\"a\\\"b\\\\c?d?\"} 7\n");
    }
}
