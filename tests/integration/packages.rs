//! What `packaging/` makes and holds, with the tools that will read it: dpkg, tar, systemd's own checks. Everything
//! is done below a directory; the machine's packages, groups and units are not touched.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::sandbox::{PROGRAM, Process, is_root, skip};

/// Where both packages have a file, but not all of them at one place.
const ZSH: [&str; 2] = ["vendor-completions", "site-functions"];
/// How exposed `systemd-analyze security` may call the reclaim service, in tenths. A service without any
/// restriction has 96; what is left is what it is for, such as CAP_SYS_ADMIN.
const EXPOSURE: &str = "40";

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn is_there(test: &str, tool: &str) -> bool {
    let is_there = Command::new(tool).arg("--version").stdin(Stdio::null()).output().is_ok();
    if !is_there {
        skip(test, &format!("it needs {tool}"));
    }
    is_there
}

/// One of the scripts that pack, quick and without a look at git.
fn script(name: &str, out: &Path) -> Command {
    let mut command = Command::new(project("packaging").join(name));
    command.arg(out).arg(stripped(out)).env("SOURCE_DATE_EPOCH", "1700000000");
    command.envs([("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")]);
    command
}

/// The program as it is released: most of what cargo makes for tests is for debuggers, and takes long to pack.
fn stripped(out: &Path) -> PathBuf {
    let to = out.join("gpu-coord");
    run(Command::new("strip").arg(PROGRAM).arg("-o").arg(&to));
    to
}

/// The rows of packaging/files: source, destination, mode.
fn packed() -> Vec<[String; 3]> {
    let list = fs::read_to_string(project("packaging/files")).unwrap();
    let rows = list.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        row.split_ascii_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>().try_into().unwrap()
    })
    .collect()
}

/// A host's directory tree with what a package holds, and the group that it makes.
fn staged() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for [source, destination, mode] in packed() {
        let to = root.path().join(destination);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(if source == "EXECUTABLE" { PathBuf::from(PROGRAM) } else { project(&source) }, &to)
            .unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(u32::from_str_radix(&mode, 8).unwrap())).unwrap();
    }
    for directory in ["etc", "var/tmp"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    root
}

#[test]
fn both_lists_in_the_manifest_hold_every_file() {
    let manifest = fs::read_to_string(project("Cargo.toml")).unwrap();
    let deb = manifest.split_once("[package.metadata.deb]").unwrap().1;
    let (deb, rpm) = deb.split_once("[package.metadata.generate-rpm]").unwrap();
    let rpm = rpm.split_once("\n[").unwrap().0;
    for [source, destination, mode] in packed() {
        let source = if source == "EXECUTABLE" { "target/release/gpu-coord".to_owned() } else { source };
        // Debian keeps the text of this license elsewhere.
        if source != "LICENSE-APACHE" {
            let row = format!("[\"{source}\", \"{destination}\", \"{mode}\"]");
            assert!(deb.contains(&row), "cargo-deb: {row}");
        }
        let destination = destination.replace(ZSH[0], ZSH[1]);
        let row = format!("source = \"{source}\", dest = \"/{destination}\", mode = \"{mode}\"");
        assert!(rpm.contains(&row), "cargo-generate-rpm: {row}");
    }
    assert_eq!(deb.matches("\", \"").count(), 2 * (packed().len() - 1), "a row too many for cargo-deb");
    assert_eq!(rpm.matches("dest = ").count(), packed().len(), "a row too many for cargo-generate-rpm");
}

#[test]
fn what_is_packed_twice_is_the_same() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (name, tool) in [("tarball", "tar"), ("deb", "dpkg-deb")] {
        if is_there("what_is_packed_twice_is_the_same", tool) {
            let read = |out: &TempDir| {
                let output = run(&mut script(name, out.path()));
                fs::read(String::from_utf8(output.stdout).unwrap().trim_end()).unwrap()
            };
            assert!(read(&first) == read(&second), "{name}");
        }
    }
}

#[test]
fn the_tarball_runs_where_it_is_unpacked() {
    let out = tempfile::tempdir().unwrap();
    let packed_at = String::from_utf8(run(&mut script("tarball", out.path())).stdout).unwrap();
    let root = out.path().join("root");
    fs::create_dir(&root).unwrap();
    run(Command::new("tar")
        .args(["-xz", "--strip-components=1", "-f", packed_at.trim_end(), "-C"])
        .arg(&root));
    for [_, destination, mode] in packed() {
        let metadata = fs::metadata(root.join(&destination)).unwrap();
        assert_eq!(format!("{:o}", metadata.mode() & 0o7777), mode, "{destination}");
    }
    let version = run(Command::new(root.join("usr/bin/gpu-coord")).arg("--version"));
    assert_eq!(version.stdout, format!("gpu-coord {}\n", env!("CARGO_PKG_VERSION")).into_bytes());
}

/// dpkg on a root of its own. Maintainer scripts are not run in it, which holds no shell, but told of it.
struct Debian(TempDir);

impl Debian {
    fn new() -> Debian {
        let root = tempfile::tempdir().unwrap();
        for directory in ["etc", "var/tmp", "var/lib/dpkg/updates", "var/lib/dpkg/info"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join("var/lib/dpkg/status"), "").unwrap();
        Debian(root)
    }

    #[track_caller]
    fn dpkg(&self, action: &str, package: &str) {
        let (root, log) = (format!("--root={}", self.0.path().display()), self.0.path().join("log"));
        let mut dpkg = Command::new("dpkg");
        dpkg.args([&root, "--force-script-chrootless", "--force-not-root", "--log"]).arg(log);
        run(dpkg.args([action, package]));
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn build(&self, revision: &str) -> String {
        let output = run(script("deb", self.0.path()).env("REVISION", revision));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn gpu_coord(&self, line: &str) -> String {
        let mut command = Command::new(self.path("usr/bin/gpu-coord"));
        command.env_clear().env("GPU_COORD_COORDINATION_FILE", self.path("var/lib/gpu-coord/coordination"));
        command.env("GPU_COORD_SOURCE", "simulated:4").args(line.split(' '));
        String::from_utf8(run(&mut command).stdout).unwrap()
    }
}

#[test]
fn the_deb_is_installed_used_upgraded_and_purged() {
    let test = "the_deb_is_installed_used_upgraded_and_purged";
    let tools = ["dpkg", "dpkg-deb", "systemd-sysusers", "systemd-tmpfiles"];
    if !is_root(test) || !tools.iter().all(|tool| is_there(test, tool)) {
        return;
    }
    let (host, owner) = (Debian::new(), Process::start());
    host.dpkg("--install", &host.build("1"));
    let record = host.path("var/lib/gpu-coord/coordination");
    let modes = [&record, record.parent().unwrap()].map(|path| fs::metadata(path).unwrap().mode() & 0o7777);
    assert_eq!(modes, [0o660, 0o750]);
    let groups = fs::read_to_string(host.path("etc/group")).unwrap();
    let group = fs::metadata(&record).unwrap().gid();
    assert!(groups.contains(&format!("gpu-coord:x:{group}:")), "{group}: {groups}");

    assert_eq!(host.gpu_coord(&format!("allocate 2 --owner {}", owner.pid())), "0,1\n");
    let held = fs::read(&record).unwrap();
    host.dpkg("--install", &host.build("2"));
    assert_eq!(fs::read(&record).unwrap(), held, "an upgrade takes nothing away");
    assert_eq!(host.gpu_coord(&format!("allocate 2 --owner {}", owner.pid())), "2,3\n");

    host.dpkg("--remove", "gpu-coord");
    assert!(!host.path("usr").exists(), "everything that was installed goes");
    assert!(record.exists(), "what is held is remembered until the purge");
    host.dpkg("--purge", "gpu-coord");
    assert!(!record.parent().unwrap().exists());
}

/// A root with systemd's own targets, since every unit needs one.
fn units() -> TempDir {
    let root = staged();
    let directory = root.path().join("usr/lib/systemd/system");
    let is_needed = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "target" || kind == "slice");
    let entries = fs::read_dir("/usr/lib/systemd/system").or_else(|_| fs::read_dir("/lib/systemd/system"));
    for path in entries.unwrap().map(|entry| entry.unwrap().path()).filter(is_needed) {
        fs::copy(&path, directory.join(path.file_name().unwrap())).unwrap();
    }
    run(Command::new("cp").arg("-r").arg(project("packaging/systemd/.")).arg(&directory));
    for program in ["opt/flink/bin/taskmanager.sh", "usr/bin/nvidia-cuda-mps-control", "bin/sh"] {
        let program = root.path().join(program);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::copy(project("packaging/deb"), program).unwrap(); // something that could be run
    }
    root
}

/// What `systemd-analyze` is asked of this root, which is not that of the machine.
fn analyze(root: &TempDir, words: &[&str]) -> Command {
    let mut command = Command::new("systemd-analyze");
    command.args(words).arg(format!("--root={}", root.path().display()));
    command
}

#[test]
fn the_units_are_sound() {
    if !is_there("the_units_are_sound", "systemd-analyze") {
        return;
    }
    let root = units();
    for unit in [
        "flink-taskmanager@1.service",
        "flink-taskmanager-gpudriver@1.service",
        "gpu-coord-reclaim.service",
        "gpu-coord-reclaim.timer",
        "nvidia-mps.service",
    ] {
        let output = run(analyze(&root, &["verify", "--man=no"]).arg(unit));
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "", "{unit}");
    }
}

#[test]
fn the_reclaim_service_has_few_rights() {
    if is_there("the_reclaim_service_has_few_rights", "systemd-analyze") {
        let words = ["security", "--offline=true", "--no-pager", &format!("--threshold={EXPOSURE}")];
        run(analyze(&units(), &words).arg("gpu-coord-reclaim.service"));
    }
}

#[test]
fn no_unit_is_blind() {
    let mut seen = 0;
    for entry in fs::read_dir(project("packaging/systemd")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let settings = || text.lines().filter(|line| !line.starts_with('#'));
        if settings().any(|line| line.contains("gpu-coord ")) && path.extension().unwrap() == "service" {
            seen += 1;
            let settings: Vec<&str> = settings().collect();
            for needed in ["PrivateTmp=no", "PrivateDevices=no", "ProcSubset=all"] {
                assert!(settings.contains(&needed), "{} lacks {needed}", path.display());
            }
        }
    }
    assert!(seen >= 3);
}

#[test]
fn the_record_does_not_age() {
    let test = "the_record_does_not_age";
    if !is_root(test) || !["systemd-sysusers", "systemd-tmpfiles"].iter().all(|tool| is_there(test, tool)) {
        return;
    }
    let root = staged();
    let option = format!("--root={}", root.path().display());
    let (record, other) =
        (root.path().join("var/tmp/flink-gpu-coordination"), root.path().join("var/tmp/other"));
    for path in [&record, &other] {
        fs::write(path, "").unwrap();
    }
    // The distribution's line, with no time for 30 days.
    fs::write(root.path().join("usr/lib/tmpfiles.d/tmp.conf"), "q /var/tmp 1777 root root 0\n").unwrap();
    run(Command::new("systemd-sysusers").arg(&option));
    run(Command::new("systemd-tmpfiles").args([&option, "--create", "--clean"]));
    assert!(record.exists() && !other.exists(), "only the record stays");
    let shared = fs::metadata(root.path().join("var/lib/gpu-coord/coordination")).unwrap();
    assert_eq!(shared.mode() & 0o7777, 0o660);
}

/// Where the README lies in a package, everything lies that it links to.
#[test]
fn a_package_has_what_its_readme_links_to() {
    let files = fs::read_to_string(project("packaging/files")).unwrap();
    let is_packaged = |link: &str| {
        files.lines().any(|line| {
            let destination = line.split_ascii_whitespace().nth(1);
            destination == Some(format!("usr/share/doc/gpu-coord/{link}").as_str())
        })
    };
    let readme = fs::read_to_string(project("README.md")).unwrap();
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let links: Vec<&str> = links.map(|(link, _)| link).filter(|link| !link.starts_with('#')).collect();
    assert!(links.len() > 2 && links.iter().all(|link| is_packaged(link)), "{links:?}");
}

#[test]
fn the_readme_is_right() {
    let readme = fs::read_to_string(project("packaging/README.md")).unwrap();
    for (link, _) in readme.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
        assert!(project("packaging").join(link).exists(), "{link}");
    }
    let content =
        readme.split_once("content: |\n").unwrap().1.lines().map_while(|line| line.strip_prefix("      "));
    let host = tempfile::tempdir().unwrap();
    let record = host.path().join("coordination");
    let text: Vec<&str> = content.collect();
    let text = text.join("\n").replace("/var/lib/gpu-coord/coordination", record.to_str().unwrap());
    fs::write(host.path().join("config.yaml"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.env_clear().args(["allocate", "1", "--source", "simulated:1", "--config"]);
    assert_eq!(run(command.arg(host.path().join("config.yaml"))).stdout, b"0\n");
    assert!(record.exists());
}
