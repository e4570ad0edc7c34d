//! The answer of an allocation: one line, which Flink takes for the indexes, or what another engine reads.

use serde_json::{Map, Value, json};

use super::handover::{Given, Handover};
use super::told::{Told, words};
use super::{Context, runtime};
use crate::cli::{Print, Word};
use crate::device::Unit;
use crate::error::Error;
use crate::notes::Notes;

/// The answer on stdout.
pub(super) struct Answer<'a> {
    context: &'a Context<'a>,
    print: Print,
    /// Empty until it is known.
    text: String,
}

impl<'a> Answer<'a> {
    pub(super) fn new(context: &'a Context<'a>, print: Print) -> Answer<'a> {
        Answer { context, print, text: String::new() }
    }
}

impl Handover for Answer<'_> {
    fn prepare(&mut self, given: &Given<'_>) -> Result<(), Error> {
        self.text = text(&given.told(), self.print)?;
        Ok(())
    }

    fn deliver(&mut self, _notes: &Notes) -> Result<(), Error> {
        self.context.stdout.write(&self.text, self.context.deadline)
    }
}

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

/// `NAME=VALUE`, a line each, as `EnvironmentFile=` of systemd reads them. What is to be unset is not said: an empty
/// list of devices is one without any, to some who read it.
fn env(told: &Told<'_>) -> Result<String, Error> {
    let line = |(name, value): (&str, Option<String>)| Some(format!("{name}={}\n", value?));
    Ok(runtime::variables(told)?.into_iter().filter_map(line).collect())
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
