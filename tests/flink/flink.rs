//! Flink's jars and its GPU plugin, out of the Python package that carries them.
//!
//! From 2.0 on it is a wheel, before that a source archive.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::engines::archive::Archive;

const PACKAGE: &str = "apache-flink-libraries";
const PLUGIN: &str = "plugins/external-resource-gpu";

pub(crate) static FLINK_2_3: LazyLock<Flink> = LazyLock::new(|| {
    Flink::fetched(&Archive {
        package: PACKAGE,
        version: "2.3.0",
        sha256: "38ece876553286b3a285cf344c2d2038f8a7ca10da5df54d5107250386d64151",
        format: "zip",
        inside: "pyflink",
    })
});

pub(crate) static FLINK_1_20: LazyLock<Flink> = LazyLock::new(|| {
    Flink::fetched(&Archive {
        package: PACKAGE,
        version: "1.20.5",
        sha256: "e6aee62ea1a1fe7b32e28894ad079f3f1a50a372a4caac3df52405267f4228c8",
        format: "gztar",
        inside: "apache_flink_libraries-1.20.5/deps",
    })
});

/// One version of Flink, as far as a standalone cluster and the GPU plugin need it.
pub(crate) struct Flink {
    pub(crate) version: &'static str,
    home: PathBuf,
}

impl Flink {
    fn fetched(archive: &Archive) -> Flink {
        let home = archive.fetched(&format!("flink-{}", archive.version), lay_out);
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
