//! `nvidia-smi`: the NVIDIA driver's own tool, asked for one line of comma separated values a card.
//!
//! Its standard output is no data until the exit status and every line have been looked at: it prints its
//! errors there too ([`rows`], [`status`]). The minors, which it does not tell, come from the kernel
//! driver by PCI address (`a_minor_is_joined_by_address`).

mod rows;
mod status;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::device::{Device, PciAddress};
use crate::host::{Host, child};
use crate::inventory::answer::{Answer, PERSISTENCE, Silence};
use crate::inventory::{Settings, driver_root, procfs};

pub(super) use status::{UNNAMED, cause};

const TOOL: &str = "nvidia-smi";
const QUERY: [&str; 2] =
    ["--query-gpu=index,uuid,pci.bus_id,name,memory.total", "--format=csv,noheader,nounits"];
/// Where a driver's root has the tool.
const TOOL_DIRECTORIES: [&str; 3] = ["usr/bin", "bin", "usr/local/bin"];

pub(super) fn read(host: &Host, settings: &Settings, limit: Duration) -> Answer {
    let mut command = command(settings)?;
    let output = child::run(command.args(QUERY), limit)
        .map_err(|failure| Silence::of_child(failure, limit, format!("no {TOOL} in PATH"), PERSISTENCE))?;
    let mut found = status::judge(&output)?;
    join(&mut found.devices, &procfs::minors(host), host);
    Ok(found)
}

fn command(settings: &Settings) -> Result<Command, Silence> {
    let (tool, library) = match &settings.driver_root {
        Some(root) => below(root)?,
        None => (TOOL.into(), None),
    };
    let mut command = Command::new(tool);
    if let Some(path) = &settings.search_path {
        command.env_clear().env("PATH", path);
    }
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    Ok(command)
}

/// The tool of a driver that is installed below `root`, and the library of that driver. The tool opens it
/// by name, so it is preloaded: a search path would bring the C library beside it, which is not the one
/// of this host's loader.
fn below(root: &Path) -> Result<(PathBuf, Option<PathBuf>), Silence> {
    let mut places = TOOL_DIRECTORIES.iter().map(|directory| root.join(directory).join(TOOL));
    match places.find(|path| path.exists()) {
        Some(tool) => Ok((tool, driver_root::below(root))),
        None => Err(Silence::Absent(format!("no {TOOL} below the driver root {}", root.display()))),
    }
}

fn join(devices: &mut [Device], minors: &HashMap<PciAddress, u32>, host: &Host) {
    for device in devices {
        device.minor = device.identity.pci.and_then(|pci| minors.get(&pci).copied());
        device.nodes = device.minor.map(|minor| procfs::node(minor, host)).into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Stdio;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Written by another process: a descriptor of ours that is open for writing would be inherited for a
    /// moment by what other tests start, and a file that is open for writing cannot be run.
    fn tool(directory: &Path, script: &str) {
        std::fs::create_dir_all(directory).unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", "cat > \"$0\"; chmod 755 \"$0\""])
            .arg(directory.join(TOOL))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        shell.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }

    fn settings(driver_root: Option<&Path>, search_path: Option<&Path>) -> Settings {
        Settings {
            source: crate::inventory::Source::Auto,
            vendor: None,
            driver_root: driver_root.map(Path::to_owned),
            search_path: search_path.map(|path| path.as_os_str().to_owned()),
        }
    }

    /// A card's name, which the fakes set to what the test asks about.
    fn name(host: &Host, settings: &Settings) -> String {
        let found = read(host, settings, LONG).unwrap();
        found.devices[0].name.clone().unwrap()
    }

    #[test]
    fn a_search_path_is_all_of_the_environment() {
        let bin = tempfile::tempdir().unwrap();
        tool(bin.path(), r#"echo "0, GPU-1, 0000:01:00.0, $PATH $HOME $*, 1""#);
        let settings = settings(None, Some(bin.path()));
        let expected = format!("{}  {}", bin.path().display(), QUERY.join(" "));
        assert_eq!(name(&Host::new(bin.path()), &settings), expected);
    }

    #[test]
    fn a_minor_is_joined_by_address() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let card = host.proc("driver/nvidia/gpus/0000:02:00.0");
        std::fs::create_dir_all(&card).unwrap();
        std::fs::write(card.join("information"), "Device Minor: 0\n").unwrap();
        tool(root.path(), "echo '0, GPU-1, 00000000:01:00.0, A, 1'; echo '1, GPU-2, 00000000:02:00.0, A, 1'");
        let devices = read(&host, &settings(None, Some(root.path())), LONG).unwrap().devices;
        assert_eq!((devices[0].minor, devices[1].minor), (None, Some(0)));
        assert_eq!(
            (devices[0].nodes.len(), devices[1].nodes.as_slice()),
            (0, [host.dev("nvidia0")].as_slice())
        );
    }

    #[test]
    fn a_driver_root_is_used_and_its_library_with_it() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let settings = settings(Some(root.path()), Some(Path::new("/nonexistent")));
        assert!(matches!(read(&host, &settings, LONG), Err(Silence::Absent(_))));
        tool(&root.path().join("usr/bin"), r#"echo "0, GPU-1, 0000:01:00.0, preload=$LD_PRELOAD, 1""#);
        assert_eq!(name(&host, &settings), "preload=");
        let library = root.path().join("usr/lib64/libnvidia-ml.so.1");
        std::fs::create_dir_all(root.path().join("usr/lib64")).unwrap();
        std::fs::write(&library, "").unwrap();
        assert_eq!(name(&host, &settings), format!("preload={}", library.display()));
    }

    #[test]
    fn a_tool_that_is_not_there_is_absent() {
        let bin = tempfile::tempdir().unwrap();
        let answer = read(&Host::new(bin.path()), &settings(None, Some(bin.path())), LONG);
        assert!(matches!(answer, Err(Silence::Absent(why)) if why == "no nvidia-smi in PATH"));
    }
}
