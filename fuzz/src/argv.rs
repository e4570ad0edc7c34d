//! The words of the command line, the environment, and the lists that some of them are.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::cli::environment::Environment;
use crate::cli::parse::{Task, parse};
use crate::device::{Device, Identity, Inventory};
use crate::notes::Notes;
use crate::visible::{Seen, Variables};
use crate::{cli, lossy};

/// A word a line; those with a `=` before any `-` are variables of the environment.
pub(crate) fn argv(bytes: &[u8]) {
    let words: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').take(64).collect();
    let is_variable =
        |word: &&&[u8]| word.first().is_some_and(u8::is_ascii_uppercase) && word.contains(&b'=');
    let pairs: Vec<(OsString, OsString)> = words.iter().filter(is_variable).map(|word| pair(word)).collect();
    // A file that the words name would be read.
    let names_file = |word: &&&[u8]| word.starts_with(b"--config") || word.starts_with(b"--co");
    let argv: Vec<OsString> = words
        .iter()
        .filter(|word| !is_variable(word) && !names_file(word))
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    let pairs: Vec<_> = pairs.into_iter().filter(|(name, _)| name != "GPU_COORD_CONFIG").collect();
    reads(&argv, &pairs);
    sees(&words);
}

fn pair(word: &[u8]) -> (OsString, OsString) {
    let at = word.iter().position(|byte| *byte == b'=').unwrap_or(word.len());
    let value = word.get(at + 1..).unwrap_or_default();
    (OsString::from_vec(word[..at].to_vec()), OsString::from_vec(value.to_vec()))
}

/// With the rights of the caller and with more; without an environment it is what `check` is told.
fn reads(argv: &[OsString], pairs: &[(OsString, OsString)]) {
    for is_privileged in [false, true] {
        let environment = Environment::from_pairs(pairs, is_privileged);
        let task = parse(argv.to_vec(), &environment, &mut Notes::default());
        assert!(task.as_ref().err().is_none_or(|error| !error.chain().is_empty()));
    }
    let words: Option<Vec<&str>> = argv.iter().map(|word| word.to_str()).collect();
    let Some(words) = words else { return };
    let refusal = cli::refusal(&words);
    match parse(argv.to_vec(), &Environment::from_pairs(&[], false), &mut Notes::default()) {
        Ok(Task::Run(..)) => assert_eq!(refusal, None, "{words:?}"),
        Ok(Task::Print(_)) | Err(_) => assert!(refusal.is_some(), "{words:?}"),
    }
}

/// Lists of devices, as variables and options have them.
fn sees(words: &[&[u8]]) {
    let mut texts = words.iter().map(|word| lossy(word));
    let variables =
        Variables { cuda: texts.next(), nvidia: texts.next(), rocr: texts.next(), hip: texts.next() };
    let inventory = inventory();
    let all = inventory.units().count();
    for is_host in [false, true] {
        let seen = Seen::by_cuda(&inventory, &variables, is_host);
        assert!(seen.units(&inventory).len() <= all);
    }
    assert!(Seen::by_hip(&inventory, &variables).units(&inventory).len() <= all);
    if let Ok(list) = lossy(&words.concat()).parse::<crate::selection::List>() {
        let _ = crate::selection::Selection::of(&inventory, Some(&list), Some(&list));
    }
}

fn inventory() -> Inventory {
    let device = |index: u32| {
        let (uuid, pci) = (Some(format!("GPU-{index}{index}")), format!("0000:0{index}:00.0").parse().ok());
        Device { slots: (index == 1).then_some(2), ..Device::new(index, Identity { uuid, pci, id: None }) }
    };
    let devices = (0..4).map(device).collect();
    Inventory { source: "fuzz".to_owned(), driver_version: None, devices, tells_instances: true }
}
