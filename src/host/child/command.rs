//! A program to be run. `std::process::Command` does not expose everything that it was given, and it starts a child
//! whose life is to be bound to ours only by fork(2) (see `start`).

use std::ffi::{CStr, CString, OsStr, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::host::execute::DEFAULT_PATH;

unsafe extern "C" {
    /// environ(7)
    static environ: *const *const c_char;
}

#[derive(Debug)]
pub(crate) struct Command {
    program: Vec<u8>,
    /// The arguments, beginning with its name.
    words: Vec<Vec<u8>>,
    /// `NAME=value`
    environment: Vec<Vec<u8>>,
}

/// The same in the form that execve(2) needs.
#[derive(Debug)]
pub(super) struct Image {
    /// Where the program may be, in the order of the search.
    pub(super) paths: Vec<CString>,
    pub(super) words: Vec<CString>,
    pub(super) environment: Vec<CString>,
}

impl Command {
    /// `program` is searched for in `PATH`, unless it contains a slash.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Command {
        let program = program.as_ref().as_bytes().to_vec();
        Command { words: vec![program.clone()], program, environment: inherited() }
    }

    /// The name under which the program sees itself.
    pub(crate) fn arg0(&mut self, name: &str) -> &mut Command {
        self.words[0] = name.into();
        self
    }

    pub(crate) fn args<T: AsRef<OsStr>>(&mut self, words: impl IntoIterator<Item = T>) -> &mut Command {
        self.words.extend(words.into_iter().map(|word| word.as_ref().as_bytes().to_vec()));
        self
    }

    pub(crate) fn env_clear(&mut self) -> &mut Command {
        self.environment.clear();
        self
    }

    pub(crate) fn env(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Command {
        let name = format!("{name}=").into_bytes();
        self.environment.retain(|variable| !variable.starts_with(&name));
        self.environment.push([&name, value.as_ref().as_bytes()].concat());
        self
    }

    /// Fails only if something contains a NUL.
    pub(super) fn image(&self) -> io::Result<Image> {
        let path = self.environment.iter().find_map(|variable| variable.strip_prefix(b"PATH="));
        let paths = places(&self.program, path.unwrap_or(DEFAULT_PATH.as_bytes()));
        let [paths, words, environment] = [&paths, &self.words, &self.environment].map(|texts| {
            texts.iter().map(|text| Ok(CString::new(text.as_slice())?)).collect::<io::Result<Vec<_>>>()
        });
        Ok(Image { paths: paths?, words: words?, environment: environment? })
    }
}

fn inherited() -> Vec<Vec<u8>> {
    let mut variables = Vec::new();
    // SAFETY: it is an array of strings that ends with a null pointer, and nothing here ever changes it.
    let mut next = unsafe { environ };
    // SAFETY: as above.
    while let Some(variable) = unsafe { next.as_ref() }.filter(|variable| !variable.is_null()) {
        // SAFETY: as above.
        variables.push(unsafe { CStr::from_ptr(*variable) }.to_bytes().to_vec());
        next = next.wrapping_add(1);
    }
    variables
}

/// `search_path`: directories separated by colons; an empty one is the working directory.
fn places(program: &[u8], search_path: &[u8]) -> Vec<Vec<u8>> {
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let directories = search_path.split(|byte| *byte == b':');
    let place = |directory: &[u8]| match directory {
        b"" => program.to_vec(),
        directory => [directory, b"/", program].concat(),
    };
    directories.map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn a_name_without_a_slash_is_looked_for() {
        for (program, path, expected) in [
            ("smi",      "/a:/b/c", &["/a/smi", "/b/c/smi"] as &[&str]),
            ("smi",      "/a::",    &["/a/smi", "smi", "smi"]),
            ("./smi",    "/a",      &["./smi"]),
            ("/opt/smi", "/a",      &["/opt/smi"]),
        ] {
            let found: Vec<_> = places(program.as_bytes(), path.as_bytes());
            assert_eq!(found, expected.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>(), "{program} in {path}");
        }
    }

    #[test]
    fn a_variable_is_set_once() {
        let mut command = Command::new("smi");
        assert!(!command.environment.is_empty(), "ours");
        command.env_clear().env("PATH", "/a").env("LD_PRELOAD", "/lib.so").env("PATH", "/b");
        assert_eq!(command.environment, [b"LD_PRELOAD=/lib.so".to_vec(), b"PATH=/b".to_vec()]);
    }

    #[test]
    fn a_word_with_a_nul_is_refused() {
        let refused = Command::new("smi").args(["a\0b"]).image();
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
