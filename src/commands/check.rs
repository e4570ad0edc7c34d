//! `gpu-coord check`.
//!
//! The findings are the answer, on stdout; status 1 says that there are any. A file that cannot be read or understood is
//! an error; then nothing is printed about the other files either.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Context, eligible};
use crate::check::{self, HostRules, Offered, Rules};
use crate::cli::{self, Check};
use crate::config::yaml::{LARGEST, Problem};
use crate::device::Inventory;
use crate::error::Error;
use crate::exit::Exit;
use crate::notes::Notes;
use crate::selection::{List, Selection};
use crate::sharing::Resources;

pub(super) fn run(context: &Context<'_>, options: &Check, notes: &mut Notes) -> Result<Exit, Error> {
    let host = options.host.then(|| context.inventory(&options.source, notes)).transpose()?;
    let offered = |asked: &Offered<'_>| offered(host.as_ref(), asked);
    let rules = Rules {
        config: context.config,
        refusal: &cli::refusal,
        host: options.host.then_some(HostRules { offered: &offered, executable: &executable }),
    };
    let mut text = String::new();
    for path in &options.files {
        let _guard = context.watch(format!("the contents of {}", path.display()));
        let contents = read(path)?;
        let findings = check::check(path, &contents, &rules)
            .map_err(|Problem { line, column, text }| wrong(path, line, column, text))?;
        text += &check::lines(path, &findings);
    }
    let is_right = text.is_empty();
    context.print(if is_right { "OK\n" } else { &text }, notes)?;
    Ok(if is_right { Exit::Success } else { Exit::NotEnough })
}

fn wrong(path: &Path, line: usize, column: usize, problem: String) -> Error {
    Error::Configuration { path: path.to_owned(), line, column, problem }
}

/// How many units of a host match.
pub(super) fn offered(
    host: Option<&(Inventory, Resources)>,
    Offered { resource, devices, exclude }: &Offered<'_>,
) -> Result<usize, String> {
    let Some((inventory, resources)) = host else { return Ok(0) };
    let list = |text: &Option<&str>| text.map(str::parse::<List>).transpose();
    let selection = Selection::of(inventory, list(devices)?.as_ref(), list(exclude)?.as_ref())?;
    let name = resource.map(eligible::qualified);
    let units = resources.only(inventory.units().collect(), name.as_deref(), inventory).unwrap_or_default();
    Ok(units.iter().filter(|unit| selection.takes(unit)).count())
}

/// Reads a file of any kind, such as the pipe of `<(helm template ...)`, whose writer is waited for.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let limit = LARGEST as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(Error::io("read", path))?;
    if bytes.len() > LARGEST {
        let problem = format!("larger than {} MiB, so it is not a configuration", LARGEST >> 20);
        return Err(Error::File { path: path.to_owned(), problem });
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let last = before.rsplit('\n').next().unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        wrong(path, line, last.chars().count() + 1, "not UTF-8".to_owned())
    })
}

/// What a path leads to, if it can be executed.
pub(super) fn executable(path: &Path) -> Result<PathBuf, String> {
    let Ok(resolved) = fs::canonicalize(path) else { return Err("does not exist".to_owned()) };
    let metadata = fs::metadata(&resolved).map_err(|error| format!("cannot be looked at ({error})"))?;
    if !metadata.is_file() {
        return Err("is not a file".to_owned());
    }
    let is_executable = metadata.permissions().mode() & 0o111 != 0;
    if is_executable { Ok(resolved) } else { Err("is not executable".to_owned()) }
}
