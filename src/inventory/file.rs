//! `file:PATH`: devices of any kind (FPGAs, network cards), as an administrator describes them in JSON:
//! `{"devices": [{"id": "...", "index": 0, "name": "...", "pci": "0000:3b:00.0", "nodes": ["/dev/xdma0"],
//! "memory_mib": 0, "unhealthy": "..."}]}`. Only `id` is required.
//!
//! An unknown key is an error: a misspelt `index` would silently renumber the devices.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::device::{Device, Health, Identity, PciAddress};
use crate::error::Error;
use crate::host::Host;
use crate::inventory::distinct;

/// Enough for about 100,000 devices.
const MOST_BYTES: u64 = 16 << 20;
/// In bytes. The id is repeated in every line of the coordination file that records the device.
const LONGEST_ID: usize = 255;

/// `path` is not below the host root, but the nodes that the file names are.
pub(super) fn read(path: &Path, host: &Host) -> Result<Vec<Device>, Error> {
    parse(&contents(path)?, path, host)
}

fn parse(text: &[u8], path: &Path, host: &Host) -> Result<Vec<Device>, Error> {
    if text.trim_ascii_start().starts_with(b"[") {
        // The derived parser would accept a list as the fields of an object in their order.
        let problem = "a list, where an object with the list `devices` is expected".to_owned();
        return Err(Error::Malformed { path: path.to_owned(), line: 1, problem });
    }
    let list: List = serde_json::from_slice(text).map_err(|err| malformed(path, &err))?;
    let mut devices: Vec<Device> =
        (0..).zip(list.devices).map(|(position, entry)| entry.device(position, host)).collect();
    distinct::check(&devices).map_err(|problem| Error::File { path: path.to_owned(), problem })?;
    devices.sort_by_key(|device| device.index);
    Ok(devices)
}

fn contents(path: &Path) -> Result<Vec<u8>, Error> {
    let refuse = |problem: &str| Error::File { path: path.to_owned(), problem: problem.to_owned() };
    let file = open(path)?;
    if !file.metadata().map_err(Error::io("look at", path))?.is_file() {
        return Err(refuse("not a regular file, so no inventory is read from it"));
    }
    let mut text = Vec::new();
    // Counted while reading, since a file in /proc has no size.
    file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(Error::io("read", path))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(refuse("larger than 16 MiB, so it is not an inventory"));
    }
    Ok(text)
}

/// Does not block: opening a FIFO without a writer would wait forever.
fn open(path: &Path) -> Result<File, Error> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(Error::io("open", path))
}

fn malformed(path: &Path, err: &serde_json::Error) -> Error {
    let text = err.to_string();
    let place = format!(" at line {} column {}", err.line(), err.column());
    let kind = if err.is_data() { "" } else { "not JSON: " };
    let problem = format!("{kind}{} (column {})", text.strip_suffix(&place).unwrap_or(&text), err.column());
    Error::Malformed { path: path.to_owned(), line: err.line(), problem }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the list `devices`")]
struct List {
    devices: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object that describes a device")]
struct Item {
    #[serde(deserialize_with = "id")]
    id: String,
    index: Option<u32>,
    #[serde(default, deserialize_with = "label")]
    name: Option<String>,
    #[serde(default, deserialize_with = "pci")]
    pci: Option<PciAddress>,
    #[serde(default, deserialize_with = "nodes")]
    nodes: Vec<PathBuf>,
    memory_mib: Option<u64>,
    #[serde(default, deserialize_with = "label")]
    unhealthy: Option<String>,
}

impl Item {
    fn device(self, position: u32, host: &Host) -> Device {
        let below_dev = |node: &PathBuf| node.strip_prefix("/dev").ok().map(|relative| host.dev(relative));
        let identity = Identity { uuid: None, pci: self.pci, id: Some(self.id) };
        Device {
            name: self.name,
            memory_mib: self.memory_mib,
            nodes: self.nodes.iter().filter_map(below_dev).collect(),
            health: self.unhealthy.map_or(Health::Sound, Health::Sick),
            ..Device::new(self.index.unwrap_or(position), identity)
        }
    }
}

/// Any printable text; the coordination file escapes it as needed.
fn id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let id = String::deserialize(from)?;
    if id.trim().is_empty() || id.len() > LONGEST_ID || id.contains(char::is_control) {
        return Err(serde::de::Error::custom(format!(
            "an `id` has 1 to {LONGEST_ID} bytes, not all of them blanks, and no control character"
        )));
    }
    Ok(id)
}

/// Text for people, on one line.
fn label<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    match text {
        Some(text) if text.contains(char::is_control) => {
            Err(serde::de::Error::custom("a control character in a text that is shown"))
        }
        text => Ok(text),
    }
}

fn pci<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PciAddress>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

fn nodes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
    let nodes = Vec::<PathBuf>::deserialize(from)?;
    match nodes.iter().find(|node| !is_node(node)) {
        Some(node) => {
            let problem = format!("the node {} is not an absolute path below /dev", node.display());
            Err(serde::de::Error::custom(problem))
        }
        None => Ok(nodes),
    }
}

fn is_node(path: &Path) -> bool {
    let below = path.strip_prefix("/dev").is_ok_and(|relative| relative.file_name().is_some());
    below && !path.components().any(|part| part == std::path::Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read_text(text: &str) -> Result<Vec<Device>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("devices.json");
        std::fs::write(&path, text).unwrap();
        let shown = format!("{}", path.display());
        read(&path, &Host::new(Path::new("/"))).map_err(|err| err.to_string().replace(&shown, "FILE"))
    }

    #[test]
    fn only_the_id_is_required() {
        let devices = read_text(r#"{"devices": [{"id": "a b,\"é"}, {"id": "1"}]}"#).unwrap();
        assert_eq!((devices[0].index, devices[1].index), (0, 1));
        assert_eq!(devices[0].identity.id.as_deref(), Some("a b,\"é"));
        assert_eq!(devices[0].health, Health::Sound);
        assert_eq!((&devices[0].name, devices[0].memory_mib, devices[0].nodes.len()), (&None, None, 0));
    }

    #[test]
    fn every_key_is_read() {
        let devices = read_text(
            r#"{"devices": [{"id": "x", "index": 7, "name": "Alveo", "pci": "0000:3B:00.1",
                "nodes": ["/dev/xdma0", "/dev/xdma/1"], "memory_mib": 64, "unhealthy": "fan"},
               {"id": "y", "index": 3, "name": null, "pci": null, "memory_mib": null, "unhealthy": null}]}"#,
        )
        .unwrap();
        assert_eq!((devices[0].index, devices[1].index), (3, 7), "not in index order");
        let identity = Identity { uuid: None, pci: "0000:3b:00.1".parse().ok(), id: Some("x".to_owned()) };
        let expected = Device {
            name: Some("Alveo".to_owned()),
            memory_mib: Some(64),
            nodes: vec!["/dev/xdma0".into(), "/dev/xdma/1".into()],
            health: Health::Sick("fan".to_owned()),
            ..Device::new(7, identity)
        };
        assert_eq!(devices[1], expected);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn rejects() {
        for (case, text, says) in [
            ("no JSON",            "index,uuid\n",                                                    "FILE:1: not JSON: expected value (column 1)"),
            ("a number",           "0, GPU-1\n",                                                      "FILE:1: invalid type: integer `0`, expected an object with the list `devices`"),
            ("empty",              "",                                                                "FILE:1: not JSON: EOF while parsing"),
            ("cut short",          "{\"devices\": [\n{\"id\": \"a\"}",                                "FILE:2: not JSON: EOF while parsing a list (column 11)"),
            ("a comment",          "// mine\n{\"devices\": []}",                                      "FILE:1: not JSON: expected value"),
            ("a list",             " [{\"id\": \"a\"}]",                                                 "FILE:1: a list, where an object"),
            ("no list",            "{}",                                                              "missing field `devices`"),
            ("a second value",     "{\"devices\": []} 1",                                             "FILE:1: not JSON: trailing characters"),
            ("a misspelt key",     "{\"devices\": [\n{\"id\": \"a\", \"indx\": 1}]}",                 "FILE:2: unknown field `indx`, expected one of `id`, `index`"),
            ("a key twice",        "{\"devices\": [{\"id\": \"a\", \"id\": \"b\"}]}",                 "duplicate field `id`"),
            ("no id",              "{\"devices\": [{\"index\": 0}]}",                                 "missing field `id`"),
            ("an empty id",        "{\"devices\": [{\"id\": \"\"}]}",                                 "an `id` has 1 to 255 bytes"),
            ("a blank id",         "{\"devices\": [{\"id\": \"  \"}]}",                               "an `id` has 1 to 255 bytes"),
            ("a line end in an id", "{\"devices\": [{\"id\": \"a\\nb\"}]}",                           "no control character"),
            ("a number as id",     "{\"devices\": [{\"id\": 1}]}",                                    "invalid type: integer `1`, expected a string"),
            ("a negative index",   "{\"devices\": [{\"id\": \"a\", \"index\": -1}]}",                 "invalid value: integer `-1`, expected u32"),
            ("no PCI address",     "{\"devices\": [{\"id\": \"a\", \"pci\": \"3b:00.0\"}]}",          "`3b:00.0` is not a PCI address"),
            ("a relative node",    "{\"devices\": [{\"id\": \"a\", \"nodes\": [\"xdma0\"]}]}",        "the node xdma0 is not an absolute path below /dev"),
            ("a node elsewhere",   "{\"devices\": [{\"id\": \"a\", \"nodes\": [\"/dev/../etc/x\"]}]}", "is not an absolute path below /dev"),
            ("an escape in a name", "{\"devices\": [{\"id\": \"a\", \"name\": \"\\u001b[2J\"}]}",     "a control character"),
            ("one id twice",       "{\"devices\": [{\"id\": \"a\"}, {\"id\": \"a\"}]}",               "FILE: device 0 (a) and device 1 (a) have one id: a"),
            ("one address twice",  "{\"devices\": [{\"id\": \"a\", \"pci\": \"0:1:0.0\"}, {\"id\": \"b\", \"pci\": \"0000:01:00.0\"}]}", "device 0 (a) and device 1 (b) have one PCI address"),
            ("an index twice",     "{\"devices\": [{\"id\": \"a\"}, {\"id\": \"b\", \"index\": 0}]}", "device 0 (a) and device 0 (b) have one index: 0"),
        ] {
            let problem = read_text(text).expect_err(case);
            assert!(problem.contains(says), "{case}: {problem}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (done, answer) = std::sync::mpsc::channel();
        let paths = [fifo, directory.path().to_owned(), "/dev/zero".into()];
        std::thread::spawn(move || {
            for path in paths {
                done.send(read(&path, &Host::new(Path::new("/"))).map_err(|err| err.to_string()))?;
            }
            Ok::<(), std::sync::mpsc::SendError<_>>(())
        });
        for _ in 0..3 {
            let answer = answer.recv_timeout(Duration::from_secs(20)).expect("it waits");
            assert!(answer.expect_err("refused").contains("not a regular file"));
        }
    }

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        File::create(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let error = read(&path, &Host::new(Path::new("/"))).expect_err("refused");
        assert!(error.to_string().contains("larger than 16 MiB"), "{error}");
    }
}
