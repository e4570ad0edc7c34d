//! What is fetched or compiled once, and kept outside the repository.
//!
//! An entry is filled in a staging directory beside its place and then renamed there, so an entry that
//! exists is whole, however often a run was interrupted, and runs at the same time cannot mix theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::environment;

const STAGING: &str = ".staging-";

/// The directory of the entry `name`, filled by `fill` if there is none yet.
#[expect(clippy::disallowed_methods, reason = "the rename rule guards the coordination file; this is none")]
pub(crate) fn entry(name: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let root = environment::cache();
    let place = root.join(name);
    if place.is_dir() {
        return place;
    }
    fs::create_dir_all(&root).unwrap();
    remove_abandoned(&root);
    let staging = tempfile::Builder::new().prefix(STAGING).tempdir_in(&root).unwrap();
    fill(staging.path());
    match fs::rename(staging.path(), &place) {
        Ok(()) => drop(staging.keep()),
        // Another run was first. Its entry is as good, and may be in use.
        Err(_) if place.is_dir() => {}
        Err(error) => panic!("cannot move {} to {}: {error}", staging.path().display(), place.display()),
    }
    place
}

/// An interrupted download leaves some hundred MB. A day is longer than any that still goes on.
fn remove_abandoned(root: &Path) {
    for entry in fs::read_dir(root).unwrap().flatten() {
        let is_staging = entry.file_name().to_string_lossy().starts_with(STAGING);
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        if is_staging && age.is_some_and(|age| age > Duration::from_secs(24 * 60 * 60)) {
            // Another run may remove it too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
