//! `nvidia-smi`: the NVIDIA driver's own tool. It is asked for a line of comma-separated values per card, and for the
//! instances of divided cards ([`mig`]).
//!
//! Its standard output is not data until the exit status and every line have been checked: it prints errors there too
//! ([`rows`], [`status`]). Minor numbers are not in the lines; they come from the kernel driver by PCI address
//! (`a_minor_is_joined_by_address`).

mod card;
mod details;
mod fields;
mod listing;
mod mig;
mod persistence;
mod rows;
mod status;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::host::child::{Command, Output};
use crate::host::{Host, child};
use crate::inventory::answer::{Answer, Found, PERSISTENCE, Silence};
use crate::inventory::{Settings, driver_root, procfs, tool};

use fields::Extra;
use mig::Told;
pub(super) use persistence::persistence;
pub(super) use status::{UNNAMED, cause};

const TOOL: &str = "nvidia-smi";
/// Where the tool is below a driver's root.
const TOOL_DIRECTORIES: [&str; 3] = ["usr/bin", "bin", "usr/local/bin"];

pub(super) fn read(host: &Host, settings: &Settings, limit: Duration) -> Answer {
    let tool = Tool::new(settings, limit)?;
    let mut found = cards(&tool)?;
    let told = mig::divide(&mut found, &tool);
    place(&mut found.devices, &told, host);
    Ok(found)
}

/// The tool. All of its calls together have to fit into `limit`.
struct Tool<'a> {
    program: PathBuf,
    library: Option<PathBuf>,
    settings: &'a Settings,
    limit: Duration,
    since: Instant,
}

impl Tool<'_> {
    fn new(settings: &Settings, limit: Duration) -> Result<Tool<'_>, Silence> {
        let (program, library) = match &settings.driver_root {
            Some(root) => below(root)?,
            None if tool::is_missing(TOOL, settings) => return Err(Silence::Absent(missing())),
            None => (TOOL.into(), None),
        };
        Ok(Tool { program, library, settings, limit, since: Instant::now() })
    }

    fn run(&self, args: &[impl AsRef<str>]) -> Result<Output, Silence> {
        let mut command = Command::new(&self.program);
        if let Some(path) = &self.settings.search_path {
            command.env_clear().env("PATH", path);
        }
        if let Some(library) = &self.library {
            command.env("LD_PRELOAD", library);
        }
        command.args(args.iter().map(AsRef::as_ref));
        child::run(&command, self.limit.saturating_sub(self.since.elapsed()))
            .map_err(|failure| Silence::of_child(failure, self.limit, missing(), PERSISTENCE))
    }
}

fn missing() -> String {
    format!("no {TOOL} in PATH")
}

/// What it says about all cards, in as many fields as its version knows.
fn cards(tool: &Tool<'_>) -> Answer {
    let mut extras = Extra::ALL.to_vec();
    let mut output = tool.run(&fields::query(&extras))?;
    // If the version does not know the field, no card is divided.
    let mut knows_mig = true;
    while status::refuses_a_field(&output) && !extras.is_empty() {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let left = fields::without_refused(&extras, &said);
        knows_mig &= left.is_empty() || left.contains(&Extra::MigMode);
        extras = left;
        output = tool.run(&fields::query(&extras))?;
    }
    let found = status::judge(&output, &extras)?;
    Ok(Found { tells_instances: found.tells_instances || !knows_mig, ..found })
}

/// The tool and the library of a driver that is installed below `root`. The tool opens the library by name, so it is
/// preloaded: with a search path, the C library next to it would be found too, which does not fit this host's loader.
fn below(root: &Path) -> Result<(PathBuf, Option<PathBuf>), Silence> {
    let mut places = TOOL_DIRECTORIES.iter().map(|directory| root.join(directory).join(TOOL));
    match places.find(|path| path.exists()) {
        Some(tool) => Ok((tool, driver_root::below(root))),
        None => Err(Silence::Absent(format!("no {TOOL} below the driver root {}", root.display()))),
    }
}

/// The minor comes from the kernel, or from the tool if it was asked for details.
fn place(devices: &mut [Device], told: &Told, host: &Host) {
    let minors = procfs::minors(host);
    for device in devices {
        let of_kernel = device.identity.pci.and_then(|pci| minors.get(&pci).copied());
        device.minor = of_kernel.or_else(|| told.of(&device.identity)?.minor);
        device.nodes = device.minor.map(|minor| procfs::node(minor, host)).into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{self, Stdio};

    use super::*;

    /// What a card says in the further fields.
    const MORE: &str = "1, P0, Default, 0, 550.54.15, Disabled";
    const LONG: Duration = Duration::from_secs(60);

    /// Written by another process: a descriptor of ours that is open for writing would be inherited for a
    /// moment by what other tests start, and a file that is open for writing cannot be run.
    fn tool(directory: &Path, script: &str) {
        std::fs::create_dir_all(directory).unwrap();
        let mut shell = process::Command::new("sh")
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
            driver_root: driver_root.map(Path::to_owned),
            search_path: search_path.map(|path| path.as_os_str().to_owned()),
            ..Settings::of(crate::inventory::Source::Auto)
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
        tool(bin.path(), &format!("echo \"0, GPU-1, 0000:01:00.0, $PATH $HOME $*, 1, {MORE}\""));
        let settings = settings(None, Some(bin.path()));
        let expected = format!("{}  {}", bin.path().display(), fields::query(&Extra::ALL).join(" "));
        assert_eq!(name(&Host::new(bin.path()), &settings), expected);
    }

    #[test]
    fn a_minor_is_joined_by_address() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let card = host.proc("driver/nvidia/gpus/0000:02:00.0");
        std::fs::create_dir_all(&card).unwrap();
        std::fs::write(card.join("information"), "Device Minor: 0\n").unwrap();
        let row =
            |index: u32| format!("echo '{index}, GPU-{index}, 00000000:0{}:00.0, A, 1, {MORE}'\n", index + 1);
        tool(root.path(), &(row(0) + &row(1)));
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
        tool(
            &root.path().join("usr/bin"),
            &format!("echo \"0, GPU-1, 0000:01:00.0, preload=$LD_PRELOAD, 1, {MORE}\""),
        );
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

    /// A version that does not know these fields, for which the shell has a pattern; asked without them, it
    /// prints `row`, and it writes down how often it was asked.
    fn refusing(patterns: &str, row: &str) -> String {
        format!(
            "echo >> \"${{0%/*}}/asked\"\nfor field in $(echo \"$1\" | tr '=,' '  '); do case $field in {patterns})\n\
             echo \"Field \\\"$field\\\" is not a valid field to query.\"; exit 2;; esac; done\necho '{row}'"
        )
    }

    #[test]
    #[rustfmt::skip] // a table
    fn an_old_version_is_asked_for_what_it_knows() {
        for (case, patterns, row, calls, used, tells_instances) in [
            ("of today",          "none",                    "0, GPU-1, 0000:01:00.0, A, 9, 1, P0, Default, 0, 550.1, Disabled", 1, Some(1), true),
            ("before MIG",        "mig.*",                   "0, GPU-1, 0000:01:00.0, A, 9, 1, P0, Default, 0, 440.1",           2, Some(1), true),
            ("without two",       "mig.*|memory.used",       "0, GPU-1, 0000:01:00.0, A, 9, P0, Default, 0, 440.1",              3, None,    true),
            ("after a field",     "memory.used",             "0, GPU-1, 0000:01:00.0, A, 9, P0, Default, 0, 900.1, Disabled",    2, None,    true),
        ] {
            let bin = tempfile::tempdir().unwrap();
            tool(&bin.path().join("bin"), &refusing(patterns, row));
            let settings = settings(Some(bin.path()), None);
            let found = read(&Host::new(bin.path()), &settings, LONG).expect(case);
            let asked = std::fs::read_to_string(bin.path().join("bin/asked")).unwrap().lines().count();
            assert_eq!((asked, found.devices[0].memory_used_mib, found.tells_instances), (calls, used, tells_instances), "{case}");
        }
    }
}
