//! An embedded program, run without a name in any directory.
//!
//! It is put into memory or, where a program may not be run from memory (`vm.memfd_noexec`, a security module), into a
//! file of a directory that allows it. Neither has a name, so nothing is left behind, whenever we end.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::child::{self, Command, Failure, Output};

/// Directories that may allow programs to be run, depending on the host.
const DIRECTORIES: [&str; 4] = ["/run", "/tmp", "/var/tmp", "/dev/shm"];
/// `MFD_EXEC` of Linux 6.3, for which nix has no name. Without it an administrator can forbid running the file.
const EXECUTABLE: MFdFlags = MFdFlags::from_bits_retain(0x10);

pub(crate) struct Embedded {
    /// Its name in a list of processes.
    pub(crate) name: &'static str,
    pub(crate) bytes: &'static [u8],
}

impl Embedded {
    /// Like [`child::run`], after `prepare`. If no place allows it, the error is that of the first.
    pub(crate) fn run(&self, prepare: impl Fn(&mut Command), limit: Duration) -> Result<Output, Failure> {
        let run = |file: io::Result<File>| self.start(file, &prepare, limit);
        let first = run(self.memory());
        if !is_refused(&first) {
            return first;
        }
        let mut others = DIRECTORIES.iter().map(|directory| run(nameless(Path::new(directory))));
        others.find(|outcome| !is_refused(outcome)).unwrap_or(first)
    }

    fn start(
        &self,
        file: io::Result<File>,
        prepare: impl Fn(&mut Command),
        limit: Duration,
    ) -> Result<Output, Failure> {
        // Not of the kind "not found", which means that the program's loader is missing.
        let no_place = |err| Failure::Start(io::Error::other(err));
        let file = file.and_then(|file| fill(file, self.bytes)).map_err(no_place)?;
        let mut command = Command::new(path(&file));
        command.arg0(self.name);
        prepare(&mut command);
        child::run(&command, limit)
    }

    fn memory(&self) -> io::Result<File> {
        match memfd_create(self.name, MFdFlags::MFD_CLOEXEC | EXECUTABLE) {
            // Linux before 6.3 neither knows nor needs the flag.
            Err(Errno::EINVAL) => Ok(memfd_create(self.name, MFdFlags::MFD_CLOEXEC)?.into()),
            file => Ok(file?.into()),
        }
    }
}

/// A file without a name, which cannot be given one later (`O_EXCL`).
fn nameless(directory: &Path) -> io::Result<File> {
    let flags = libc::O_TMPFILE | libc::O_EXCL;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(directory)?;
    file.set_permissions(Permissions::from_mode(0o700))?;
    Ok(file)
}

/// Returns the file open for reading only: a file that is open for writing cannot be run.
fn fill(mut file: File, bytes: &[u8]) -> io::Result<File> {
    file.write_all(bytes)?;
    File::open(path(&file))
}

/// The path of an open file, which is valid in the child as well: the descriptor has the same number there.
fn path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Whether this place does not allow the program to be run, but another one may.
fn is_refused(outcome: &Result<Output, Failure>) -> bool {
    matches!(outcome, Err(Failure::Start(err)) if err.kind() != io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn program(bytes: Vec<u8>) -> Embedded {
        Embedded { name: "embedded", bytes: bytes.leak() }
    }

    /// `sh -c SCRIPT`
    fn shell(file: io::Result<File>, script: &str) -> Result<Output, Failure> {
        let shell = program(std::fs::read("/bin/sh").unwrap());
        let prepare = |command: &mut Command| {
            command.args(["-c", script]);
        };
        shell.start(file, prepare, LONG)
    }

    #[test]
    fn it_runs_from_memory_and_from_a_file_without_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let memory = || program(Vec::new()).memory();
        for place in [&memory as &dyn Fn() -> io::Result<File>, &|| nameless(directory.path())] {
            let output = shell(place(), "echo $0; readlink /proc/$$/exe").unwrap();
            let told = String::from_utf8(output.stdout).unwrap();
            assert!(told.starts_with("embedded\n"), "{told}");
            assert!(told.ends_with(" (deleted)\n"), "{told}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn another_place_is_tried_where_one_is_refused() {
        let refused = shell(Err(io::ErrorKind::PermissionDenied.into()), "");
        assert!(is_refused(&refused));
        assert!(!refused.expect_err("no place").is_missing());
        let no_directory = shell(nameless(Path::new("/nonexistent")), "");
        assert!(is_refused(&no_directory));
        assert!(!no_directory.expect_err("no place").is_missing());
    }

    #[test]
    fn one_that_lacks_its_loader_is_missing_and_not_refused() {
        let script = program(b"#!/nonexistent/loader\n".to_vec());
        assert!(script.run(|_| (), LONG).expect_err("no loader").is_missing());
    }
}
