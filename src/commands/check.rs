//! `gpu-coord check`.
//!
//! What is wrong is the answer, on stdout, and status 1 says that there is something. A file that cannot be read or
//! understood is an error, and then nothing is printed of the others.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Context;
use crate::check::{self, HostRules, Rules};
use crate::cli::{self, Check};
use crate::config::yaml::LARGEST;
use crate::device::Inventory;
use crate::error::Error;
use crate::notes::Notes;
use crate::sharing::Resources;

pub(super) fn run(context: &Context<'_>, options: &Check, notes: &mut Notes) -> Result<(), Error> {
    let host = options.host.then(|| context.inventory(&options.source, notes)).transpose()?;
    let offered = |name: Option<&str>| {
        host.as_ref().map_or(0, |(inventory, resources)| offered(inventory, resources, name))
    };
    let rules = Rules {
        sharing: context.config.and_then(|config| config.sharing.as_ref()),
        refusal: &cli::refusal,
        host: options.host.then_some(HostRules { offered: &offered, executable: &executable }),
    };
    let (mut text, mut wrong, mut found) = (String::new(), 0, 0);
    for path in &options.files {
        let contents = read(context, path)?;
        let findings = check::check(path, &contents, &rules).map_err(|problem| Error::Configuration {
            path: path.clone(),
            line: problem.line,
            column: problem.column,
            problem: problem.text,
        })?;
        text += &check::lines(path, &findings);
        wrong += usize::from(!findings.is_empty());
        found += findings.len();
    }
    context.stdout.write(if found == 0 { "OK\n" } else { &text }, context.deadline)?;
    if found == 0 { Ok(()) } else { Err(verdict(found, wrong, options.files.len())) }
}

fn verdict(found: usize, wrong: usize, files: usize) -> Error {
    let what = if found == 1 { "1 thing is wrong".to_owned() } else { format!("{found} things are wrong") };
    let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
    Error::NotEnough(format!("{what}, in {wrong} of {files}; correct it before it is deployed"))
}

fn offered(inventory: &Inventory, resources: &Resources, name: Option<&str>) -> usize {
    resources.only(inventory.units().collect(), name, inventory).map_or(0, |units| units.len())
}

/// Whatever can be read, as `<(helm template ...)` makes it: its writer is waited for.
fn read(context: &Context<'_>, path: &Path) -> Result<String, Error> {
    let _guard = context.watch(format!("the contents of {}", path.display()));
    let mut bytes = Vec::new();
    let limit = LARGEST as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(Error::io("read", path))?;
    let refused = |problem: String| Error::File { path: path.to_owned(), problem };
    if bytes.len() > LARGEST {
        return Err(refused(format!("larger than {} MiB, and so no configuration", LARGEST >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|it| **it == b'\n')
            .count();
        Error::Malformed { path: path.to_owned(), line, problem: "not UTF-8".to_owned() }
    })
}

/// What a path leads to, if it can be executed.
fn executable(path: &Path) -> Result<PathBuf, String> {
    let Ok(resolved) = fs::canonicalize(path) else { return Err("does not exist".to_owned()) };
    let metadata = fs::metadata(&resolved).map_err(|error| format!("cannot be looked at ({error})"))?;
    if !metadata.is_file() {
        return Err("is no file".to_owned());
    }
    let is_executable = metadata.permissions().mode() & 0o111 != 0;
    if is_executable { Ok(resolved) } else { Err("is not executable".to_owned()) }
}
