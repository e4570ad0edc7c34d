//! The answer of an allocation: one line, which Flink takes for the indexes, or what another engine reads.

use serde_json::{Map, Value, json};

use super::runtime;
use super::told::{Told, words};
use crate::cli::{Print, Word};
use crate::device::Unit;
use crate::error::Error;

/// The answer as it is printed.
pub(super) fn text(told: &Told<'_>, print: Print) -> Result<String, Error> {
    let words = |word| words(told.inventory, told.units, told.seen, word);
    let line = match print {
        Print::Word(word) => words(word)?.join(","),
        Print::Env => return env(told),
        Print::Json => json(told)?.to_string(),
        // Spark's `ResourceInformation`, which a worker wants of its discovery script.
        Print::Spark => json!({ "name": "gpu", "addresses": words(Word::Index)? }).to_string(),
    };
    Ok(line + "\n")
}

/// `NAME=VALUE`, a line each, as `EnvironmentFile=` of systemd reads them; what is to be unset is left empty.
fn env(told: &Told<'_>) -> Result<String, Error> {
    let line = |(name, value): (&str, Option<String>)| format!("{name}={}\n", value.unwrap_or_default());
    Ok(runtime::variables(told)?.into_iter().map(line).collect())
}

/// On one line.
fn json(told: &Told<'_>) -> Result<Value, Error> {
    let unit = |unit: &Unit| {
        let identity = told.inventory.identity(unit);
        json!({
            "index": told.inventory.devices[unit.device].index,
            "slot": unit.slot,
            "uuid": identity.uuid,
            "pci": identity.pci.map(|pci| pci.to_string()),
            "id": identity.id,
        })
    };
    let set = runtime::variables(told)?.into_iter().map(|(name, value)| (name.to_owned(), json!(value)));
    let units: Vec<Value> = told.units.iter().map(unit).collect();
    Ok(json!({ "version": 1, "units": units, "environment": set.collect::<Map<_, _>>() }))
}
