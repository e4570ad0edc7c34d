//! cgroup v2: a program of ours in the kernel decides what the processes of a group may open.
//!
//! * The program belongs to the group, outlives us, and goes with the group.
//! * It is one beside others and can only deny: all programs of a group and of those above it must allow. None
//!   that was in force is out of force when ours is (`what_an_override_above_denies_stays_denied`).
//! * Only what bears our name and is of our form is ever detached (`a_program_of_another_stays`).
//! * At no moment is less denied than before and after (`a_later_denylist_replaces_an_earlier_one`).
//!
//! Not here: which group, and that what is denied cannot be opened, which the caller proves.

mod bpf;
mod memlock;
mod program;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};

use super::denylist::Denylist;
use crate::error::Error;
use bpf::Scope;
use program::{decode, is_blinded, program, union};

/// By which we know our programs.
const NAME: &str = "gpu_coord";

/// An attached program of ours.
struct Ours {
    program: OwnedFd,
    /// `None` if the kernel does not show it.
    denied: Option<Denylist>,
}

/// Denies the processes of the group, and of the groups below it, these devices and no others.
///
/// After an error what was in force before still is; if one of our own could not be taken away, more is denied.
pub(crate) fn deny(group: &Path, denied: &Denylist) -> Result<(), Error> {
    let refused = |problem: String| isolation(group, &problem);
    let directory = open(group).map_err(refused)?;
    refuse_root(group).map_err(refused)?;
    let instructions = program(denied).ok_or_else(|| refused(too_large(denied)))?;
    // First of all, since it tells best what right is missing.
    let new = bpf::load(NAME, &instructions).map_err(|error| refused(not_loaded(&error)))?;
    let old = ours(directory.as_fd()).map_err(|error| refused(not_read(&error)))?;
    attach(directory.as_fd(), new.as_fd()).map_err(refused)?;
    detach(directory.as_fd(), &old).map_err(|error| {
        refused(format!("more is denied than should be, since an earlier program of gpu-coord cannot be detached ({error}); retry, or remove the group"))
    })
}

/// Takes our programs away. Nothing to do is no error, and neither is a group that is gone.
pub(crate) fn lift(group: &Path) -> Result<(), Error> {
    match try_lift(group) {
        Err(problem) if !is_gone(group) => Err(isolation(group, &problem)),
        _ => Ok(()),
    }
}

fn try_lift(group: &Path) -> Result<(), String> {
    let directory = open(group)?;
    let old = ours(directory.as_fd()).map_err(|error| not_read(&error))?;
    detach(directory.as_fd(), &old).map_err(|error| {
        format!("the device program of gpu-coord cannot be detached ({error}); remove the group")
    })
}

/// What our programs of this group deny, as the kernel has them; `None` if there are none.
pub(crate) fn denied(group: &Path) -> Result<Option<Denylist>, Error> {
    let refused = |problem: String| isolation(group, &problem);
    let directory = open(group).map_err(refused)?;
    let ours = ours(directory.as_fd()).map_err(|error| refused(not_read(&error)))?;
    let lists: Option<Vec<Denylist>> = ours.into_iter().map(|ours| ours.denied).collect();
    let lists = lists.ok_or_else(|| refused(NOT_SHOWN.to_owned()))?;
    // Several only if we died before the earlier ones were detached.
    Ok((!lists.is_empty()).then(|| union(lists)))
}

fn open(group: &Path) -> Result<File, String> {
    let directory = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(group);
    let directory = directory.map_err(|error| format!("the control group cannot be opened: {error}"))?;
    match fstatfs(&directory) {
        Ok(stat) if stat.filesystem_type() == CGROUP2_SUPER_MAGIC => Ok(directory),
        Ok(_) => Err("is no control group of cgroup v2".to_owned()),
        Err(error) => Err(format!("the control group cannot be read: {error}")),
    }
}

/// The kernel would take a program for the root, and the whole host would be denied the devices.
fn refuse_root(group: &Path) -> Result<(), String> {
    // Every other group has it.
    match fs::exists(group.join("cgroup.events")) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err("is the root of the control groups, and holds the whole host; name a group below it"
                .to_owned())
        }
        Err(error) => Err(format!("the control group cannot be read: {error}")),
    }
}

fn is_gone(group: &Path) -> bool {
    matches!(fs::exists(group), Ok(false))
}

/// Beside what is in force, all of which is so afterwards too, or the program is not attached.
fn attach(group: BorrowedFd<'_>, new: BorrowedFd<'_>) -> Result<(), String> {
    let before = bpf::query(group, Scope::Effective).map_err(|error| not_read(&error))?;
    bpf::attach(group, new, bpf::ALLOW_MULTI).map_err(|error| not_attached(&error))?;
    verify(group, new, &before).map_err(|problem| match bpf::detach(group, new) {
        Ok(()) => problem,
        Err(error) => format!("{problem}; the program of gpu-coord cannot be detached again: {error}"),
    })
}

fn verify(group: BorrowedFd<'_>, new: BorrowedFd<'_>, before: &[u32]) -> Result<(), String> {
    let after = bpf::query(group, Scope::Effective).map_err(|error| not_read(&error))?;
    if !after.contains(&bpf::id(new).map_err(|error| not_read(&error))?) {
        return Err("the device program is attached, and the kernel does not have it in force".to_owned());
    }
    if !before.iter().all(|id| after.contains(id)) {
        // The kernel lets a program below replace that one.
        return Err("a device program above it, attached with BPF_F_ALLOW_OVERRIDE, would no longer be in force; attach that one with BPF_F_ALLOW_MULTI".to_owned());
    }
    Ok(())
}

/// All are tried; the error is the first.
fn detach(group: BorrowedFd<'_>, old: &[Ours]) -> io::Result<()> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let detached = old.iter().map(|old| bpf::detach(group, old.program.as_fd()));
    let failures: Vec<io::Error> = detached.filter_map(Result::err).filter(|error| !is_gone(error)).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// The group's own alone, and not those above it.
fn ours(group: BorrowedFd<'_>) -> io::Result<Vec<Ours>> {
    let ids = bpf::query(group, Scope::Attached)?;
    ids.into_iter().filter_map(|id| our_program(id).transpose()).collect()
}

fn our_program(id: u32) -> io::Result<Option<Ours>> {
    let program = match bpf::fetch(id) {
        Ok(program) => program,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A security module keeps it from us: ours would not be.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && may_fetch() => return Ok(None),
        Err(error) => return Err(error),
    };
    if bpf::name(program.as_fd())? != NAME {
        return Ok(None);
    }
    let shown = bpf::instructions(program.as_fd())?.filter(|shown| !is_blinded(shown));
    let denied = shown.as_deref().map(decode);
    // One of our name and of another form is not ours. One that is hidden is taken for ours by its name.
    Ok((denied != Some(None)).then(|| Ours { program, denied: denied.flatten() }))
}

/// Rights are looked at before the identity is looked for, and there is no program of this one.
fn may_fetch() -> bool {
    bpf::fetch(u32::MAX).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

const NOT_SHOWN: &str = "the kernel does not show what the device program of gpu-coord denies: \
    that takes CAP_SYS_ADMIN in the initial user namespace, and net.core.bpf_jit_harden below 2 when it was loaded";

fn isolation(group: &Path, problem: &str) -> Error {
    Error::Isolation(format!("{}: {problem}", group.display()))
}

fn too_large(denied: &Denylist) -> String {
    format!("a denylist of {} ranges of devices is more than a device program can hold", denied.spans.len())
}

fn not_loaded(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "no device program can be loaded: that takes CAP_SYS_ADMIN, or CAP_BPF with \
            CAP_NET_ADMIN, in the initial user namespace, and no seccomp filter that forbids bpf(2)"
            .to_owned(),
        Some(libc::ENOSYS) => {
            format!("no device program can be loaded ({error}): that takes CONFIG_CGROUP_BPF")
        }
        _ => format!("no device program can be loaded: {error}"),
    }
}

fn not_attached(error: &io::Error) -> String {
    match error.raw_os_error() {
        // It was loaded, so that rights are not what is missing.
        Some(libc::EPERM) => {
            "no device program can be attached: one without BPF_F_ALLOW_MULTI is attached to it \
            or above it, and forbids others; attach that one with BPF_F_ALLOW_MULTI"
                .to_owned()
        }
        Some(libc::E2BIG) => {
            "no device program can be attached: it has as many as the kernel allows".to_owned()
        }
        _ => format!("no device program can be attached: {error}"),
    }
}

fn not_read(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "its device programs cannot be looked at: that takes CAP_SYS_ADMIN \
            in the initial user namespace"
                .to_owned()
        }
        _ => format!("its device programs cannot be looked at: {error}"),
    }
}
