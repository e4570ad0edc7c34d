//! Flink's jars and its GPU plugin, out of the Python package that carries them.
//!
//! From 2.0 on it is a wheel, before that a source archive. pip is the client, so that mirrors and proxies
//! are whatever the user's pip has. It prepares the metadata of a source archive (a second or two) and
//! builds nothing. The hashes make a version the same bytes everywhere.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::{cache, process};

const UNPACK: &str = "import shutil, sys; shutil.unpack_archive(*sys.argv[1:])";
const PLUGIN: &str = "plugins/external-resource-gpu";

pub(crate) static FLINK_2_3: LazyLock<Flink> = LazyLock::new(|| {
    Flink::fetched(&Archive {
        version: "2.3.0",
        sha256: "38ece876553286b3a285cf344c2d2038f8a7ca10da5df54d5107250386d64151",
        format: "zip",
        inside: "pyflink",
    })
});

pub(crate) static FLINK_1_20: LazyLock<Flink> = LazyLock::new(|| {
    Flink::fetched(&Archive {
        version: "1.20.5",
        sha256: "e6aee62ea1a1fe7b32e28894ad079f3f1a50a372a4caac3df52405267f4228c8",
        format: "gztar",
        inside: "apache_flink_libraries-1.20.5/deps",
    })
});

struct Archive {
    version: &'static str,
    sha256: &'static str,
    /// As `shutil.unpack_archive` calls it; it cannot tell a wheel by its name.
    format: &'static str,
    inside: &'static str,
}

/// One version of Flink, as far as a standalone cluster and the GPU plugin need it.
pub(crate) struct Flink {
    pub(crate) version: &'static str,
    home: PathBuf,
}

impl Flink {
    fn fetched(archive: &Archive) -> Flink {
        let home = cache::entry(&format!("flink-{}", archive.version), |staging| {
            download(archive, staging);
            unpack(archive, staging);
            lay_out(&staging.join("unpacked").join(archive.inside), staging);
            fs::remove_dir_all(staging.join("unpacked")).unwrap();
            fs::remove_dir_all(staging.join("download")).unwrap();
        });
        Flink { version: archive.version, home }
    }

    pub(crate) fn class_path(&self) -> String {
        let jars = fs::read_dir(self.home.join("lib")).unwrap();
        let mut jars: Vec<String> = jars.map(|jar| jar.unwrap().path().display().to_string()).collect();
        jars.sort();
        jars.join(":")
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.home.join("plugins")
    }

    /// The script that gpu-coord replaces.
    pub(crate) fn stock_script(&self) -> PathBuf {
        self.home.join(PLUGIN).join("nvidia-gpu-discovery.sh")
    }
}

fn download(archive: &Archive, staging: &Path) {
    let wanted = staging.join("requirements.txt");
    let Archive { version, sha256, .. } = archive;
    fs::write(&wanted, format!("apache-flink-libraries=={version} --hash=sha256:{sha256}\n")).unwrap();
    let mut pip = python();
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--requirement"]).arg(&wanted);
    process::run(pip.arg("--dest").arg(staging.join("download")), "python3-pip");
}

fn unpack(archive: &Archive, staging: &Path) {
    let file = fs::read_dir(staging.join("download")).unwrap().next().expect("pip says it did").unwrap();
    let mut unpack = python();
    unpack.args(["-c", UNPACK]).arg(file.path()).arg(staging.join("unpacked"));
    process::run(unpack.arg(archive.format), "python3");
}

/// Keeps what is needed: `lib` with Flink itself and its logger, and the plugin with both its scripts.
#[expect(clippy::disallowed_methods, reason = "the rename rule guards the coordination file; this is none")]
fn lay_out(unpacked: &Path, home: &Path) {
    fs::create_dir(home.join("lib")).unwrap();
    for jar in fs::read_dir(unpacked.join("lib")).unwrap() {
        let name = jar.unwrap().file_name();
        if ["flink-dist-", "log4j-"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            fs::rename(unpacked.join("lib").join(&name), home.join("lib").join(&name)).unwrap();
        }
    }
    fs::create_dir(home.join("plugins")).unwrap();
    fs::rename(unpacked.join(PLUGIN), home.join(PLUGIN)).unwrap();
    for file in fs::read_dir(home.join(PLUGIN)).unwrap() {
        let file = file.unwrap().path();
        if file.extension() == Some(OsStr::new("sh")) {
            // A wheel is a zip file, out of which Python takes no modes.
            fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
        }
    }
}

fn python() -> Command {
    Command::new("python3")
}
