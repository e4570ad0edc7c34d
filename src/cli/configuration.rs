//! The configuration file: found, and read.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::options::Common;
use super::variables::{self, Variable};
use crate::config::{self, Config, Preset};
use crate::error::Error;
use crate::host::file;
use crate::notes::Notes;

/// Read if it is there.
const DEFAULT: &str = "/etc/gpu-coord/config.yaml";

/// What is read, and from where.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) path: PathBuf,
    pub(super) config: Config,
}

/// The file that `--config` names has to be there.
pub(super) fn read(common: &Common, notes: &mut Notes) -> Result<Option<Configuration>, Error> {
    let path = common.config.as_deref().unwrap_or(Path::new(DEFAULT));
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
            "{}: {key} is for the Kubernetes device plugin, and says nothing here",
            path.display()
        ));
    }
    Ok(Some(Configuration { path: path.to_owned(), config }))
}

/// Of a pipe, or of a device but the null device, the end might never come.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    // A directory is refused by its own name.
    if kind.is_file() || kind.is_dir() || path == Path::new("/dev/null") {
        file::read(path)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// The options that the file sets.
pub(super) fn defaults(path: &Path, options: &[Preset]) -> Result<Vec<Variable>, Error> {
    let known = |option: &&Preset| variables::is_option(&option.name) && !option.name.starts_with("config");
    if let Some(Preset { name, place: (line, column), .. }) = options.iter().find(|option| !known(option)) {
        let near = variables::nearest_option(name).filter(|near| near != name);
        let hint = near.map(|near| format!("; did you mean `{near}`?"));
        let problem = format!("`{name}` is no option that can be set here{}", hint.unwrap_or_default());
        return Err(Error::Configuration { path: path.to_owned(), line: *line, column: *column, problem });
    }
    Ok(options.iter().map(|option| Variable::of_option(&option.name, &option.value)).collect())
}
