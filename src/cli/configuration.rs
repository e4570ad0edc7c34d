//! The configuration file: found, and read.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::sys::stat::{SFlag, stat};

use super::options::Common;
use super::variables::{self, Variable};
use super::watchdog::{self, Guard};
use crate::config::{self, Config, Preset};
use crate::coordination::place;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::notes::Notes;

/// In bytes.
const LARGEST: u64 = 64 << 20;
/// Read if it exists.
const DEFAULT: &str = "/etc/gpu-coord/config.yaml";

/// Reads the configuration. The file that `--config` names must exist.
pub(super) fn read(common: &Common, notes: &mut Notes) -> Result<Option<Config>, Error> {
    let path = common.config.as_deref().unwrap_or(Path::new(DEFAULT));
    let _guard = common.config.as_deref().and_then(|path| guard(common, path));
    let bytes = match contents(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound && common.config.is_none() => return Ok(None),
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    let problem = |line: usize, column: usize, problem: String| Error::Configuration {
        path: path.to_owned(),
        line,
        column,
        problem,
    };
    let text = String::from_utf8(bytes).map_err(|_| problem(1, 1, "not UTF-8".to_owned()))?;
    let config = config::parse(&text, common.config_key.as_deref())
        .map_err(|found| problem(found.line, found.column, found.text))?;
    for key in &config.ignored {
        notes.detail(format!(
            "{}: {key} is for the Kubernetes device plugin, and is ignored here",
            path.display()
        ));
    }
    Ok(Some(Config { path: path.to_owned(), ..config }))
}

/// Bounds what follows, by the deadline as known so far, if the file is on a file system that can hang.
fn guard(common: &Common, path: &Path) -> Option<Guard> {
    let what = || format!("the file system of {}, which does not answer", path.display());
    let may_hang = place::may_hang(&Host::new(&common.root), path);
    may_hang.then(|| watchdog::guard(Deadline::after(common.deadline), what()))
}

/// The contents. A pipe or a device, except for the null device, might never end and is refused; files of the kernel that
/// never end report that with `O_NONBLOCK`.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    // Not with the standard library, which makes two calls if there is no file.
    let kind = SFlag::from_bits_truncate(stat(path)?.st_mode) & SFlag::S_IFMT;
    // For a directory, reading fails with an error that says so.
    if !(kind == SFlag::S_IFREG || kind == SFlag::S_IFDIR || path == Path::new("/dev/null")) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut contents = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it has more than {LARGEST} bytes")));
    }
    Ok(contents)
}

/// The options that the file sets.
pub(super) fn defaults(config: &Config) -> Result<Vec<Variable>, Error> {
    let known = |option: &&Preset| variables::is_option(&option.name) && !option.name.starts_with("config");
    if let Some(Preset { name, position, .. }) = config.options.iter().find(|option| !known(option)) {
        let near = variables::nearest_option(name).filter(|near| near != name);
        let hint = near.map(|near| format!("; did you mean `{near}`?"));
        let problem = format!("`{name}` is not an option that can be set here{}", hint.unwrap_or_default());
        return Err(config.error(*position, problem));
    }
    Ok(config.options.iter().map(|option| Variable::of_option(config, option)).collect())
}
