//! Becoming another program: finding its file, and the privileges that it runs with.

#![expect(unsafe_code, reason = "capset(2) has no safe wrapper, and setting a signal's action is unsafe")]

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::prctl::set_no_new_privs;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal};
use nix::unistd::{Gid, Uid, getegid, geteuid, setgroups, setresgid, setresuid};

use super::account::Account;

/// Where programs are searched for without a PATH, as in the C library.
pub(super) const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file of `name`, as execvp(3) finds it; or why it cannot be run.
pub(crate) fn find(name: &OsStr, search_path: Option<&OsString>) -> io::Result<PathBuf> {
    let given = Path::new(name);
    if name.as_encoded_bytes().contains(&b'/') {
        return check(given).map(|()| given.to_owned());
    }
    let default = OsString::from(DEFAULT_PATH);
    let mut problem = io::Error::from_raw_os_error(libc::ENOENT);
    if name.is_empty() {
        return Err(problem);
    }
    for directory in env::split_paths(search_path.unwrap_or(&default)) {
        // An empty one is the working directory.
        let directory = if directory == Path::new("") { Path::new(".") } else { &directory };
        let path = directory.join(given);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

fn check(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    let is_executable = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    if is_executable { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EACCES)) }
}

/// Becomes the command, with no signal blocked: neither those that we have blocked nor those that a careless parent had.
/// Returns only if it fails; then everything is as it was.
pub(crate) fn exec(command: &mut Command) -> io::Error {
    let before = SigSet::empty().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let error = command.exec();
    let _ = before.and_then(|mask| mask.thread_set_mask());
    // SAFETY: no handler is installed. The standard library has reset the signal for the program to be executed.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    error
}

/// Permanently drops all privileges that `account` does not have: no program that this process executes gets more
/// (`no_new_privs`). Requires root.
pub(crate) fn drop_rights(account: &Account) -> io::Result<()> {
    if account.uid != 0 {
        empty_bounding_set();
    }
    let groups: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups)?;
    let (gid, uid) = (Gid::from_raw(account.gid), Uid::from_raw(account.uid));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    if account.uid != 0 {
        drop_capabilities()?;
    }
    if (geteuid(), getegid()) != (uid, gid) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    set_no_new_privs()?;
    Ok(())
}

/// Keeps even programs with file capabilities from getting any. A failure does not matter: the capabilities themselves
/// are dropped too, and `no_new_privs` prevents new ones.
fn empty_bounding_set() {
    const GREATEST: u64 = 63;
    for capability in 0..=GREATEST {
        // SAFETY: the call takes numbers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// Also drops the capabilities that survive a change of the user id.
fn drop_capabilities() -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3`: two words of each set.
    const VERSION: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION, 0];
    let none = [0_u32; 6];
    // SAFETY: both are as large as that version requires; pid 0 in the header is this thread.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn a_command_is_found_as_a_shell_finds_it() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        file("a/plain", 0o644);
        file("b/plain", 0o755);
        file("a/only", 0o644);
        let directory = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        let search_path = OsString::from(format!("{}:{}", directory("a"), directory("b")));
        for (name, found) in [
            ("plain".to_owned(),   Ok(directory("b/plain"))),
            ("only".to_owned(),    Err(libc::EACCES)),
            ("missing".to_owned(), Err(libc::ENOENT)),
            (directory("b/plain"), Ok(directory("b/plain"))),
            (directory("a/plain"), Err(libc::EACCES)),
            (directory("a"),       Err(libc::EACCES)),
            (directory("c"),       Err(libc::ENOENT)),
            (String::new(),        Err(libc::ENOENT)),
            ("plain/".to_owned(),  Err(libc::ENOENT)),
        ] {
            let result = find(OsStr::new(&name), Some(&search_path));
            let result = result.map_err(|error| error.raw_os_error().unwrap());
            assert_eq!(result, found.map(PathBuf::from), "{name}");
        }
        assert_eq!(find(OsStr::new("sh"), None).unwrap(), Path::new("/bin/sh"));
    }
}
