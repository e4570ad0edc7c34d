//! cgroup v2: a BPF program of ours decides what the processes of a group may open.
//!
//! * The program belongs to the group: it outlives us and goes away with the group.
//! * It is one of several and can only deny: all programs of the group and of the groups above must allow. Attaching
//!   ours never disables another one (`what_an_override_above_denies_stays_denied`).
//! * A program is detached only if it has our name and our form (`a_program_of_another_stays`).
//! * While one denylist replaces another, both are in force (`a_later_denylist_replaces_an_earlier_one`).
//!
//! Not here: which group it is, and the proof that what is denied cannot be opened.

mod arguments;
mod bpf;
mod load;
mod memlock;
mod problem;
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
use load::load;
use program::{decode, is_blinded, program, union};

/// The name of our programs.
const NAME: &str = "gpu_coord";

/// An attached program of ours.
struct Ours {
    program: OwnedFd,
    /// `None` if the kernel does not show it.
    denied: Option<Denylist>,
}

/// Denies these devices and no others to the processes of the group and of the groups below it.
///
/// After an error everything that was denied before still is. More may be denied, if an earlier or the new program of
/// ours could not be detached.
pub(crate) fn deny(group: &Path, denied: &Denylist) -> Result<(), Error> {
    at(group, try_deny(group, denied))
}

/// Detaches our programs. It is no error if there are none, or if the group is gone.
pub(crate) fn lift(group: &Path) -> Result<(), Error> {
    match try_lift(group) {
        Err(_) if is_gone(group) => Ok(()),
        outcome => at(group, outcome),
    }
}

/// What our programs in this group deny, read back from the kernel; `None` if there are none.
pub(crate) fn denied(group: &Path) -> Result<Option<Denylist>, Error> {
    at(group, try_denied(group))
}

fn at<T>(group: &Path, outcome: Result<T, String>) -> Result<T, Error> {
    outcome.map_err(|problem| Error::Isolation(format!("{}: {problem}", group.display())))
}

fn try_deny(group: &Path, denied: &Denylist) -> Result<(), String> {
    let directory = open(group)?;
    refuse_root(group)?;
    let instructions = program(denied).ok_or_else(|| problem::too_large(denied))?;
    // Done first, since its error says best which privilege is missing.
    let new = load(NAME, &instructions).map_err(|error| problem::not_loaded(&error))?;
    let old = ours(directory.as_fd())?;
    attach(directory.as_fd(), new.as_fd())?;
    detach(directory.as_fd(), &old).map_err(|error| problem::not_replaced(&error))
}

fn try_lift(group: &Path) -> Result<(), String> {
    let directory = open(group)?;
    let old = ours(directory.as_fd())?;
    detach(directory.as_fd(), &old).map_err(|error| problem::not_lifted(&error))
}

fn try_denied(group: &Path) -> Result<Option<Denylist>, String> {
    let ours = ours(open(group)?.as_fd())?;
    let lists: Option<Vec<Denylist>> = ours.into_iter().map(|ours| ours.denied).collect();
    let lists = lists.ok_or(problem::NOT_SHOWN)?;
    // Several only if we died before the earlier ones were detached.
    Ok((!lists.is_empty()).then(|| union(lists)))
}

fn open(group: &Path) -> Result<File, String> {
    let directory = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(group);
    let directory = directory.map_err(|error| problem::not_opened(&error))?;
    match fstatfs(&directory) {
        Ok(stat) if stat.filesystem_type() == CGROUP2_SUPER_MAGIC => Ok(directory),
        Ok(_) => Err(problem::NO_GROUP.to_owned()),
        Err(error) => Err(problem::not_opened(&error.into())),
    }
}

/// The kernel would accept a program for the root, which would deny the devices to the whole host.
fn refuse_root(group: &Path) -> Result<(), String> {
    // Every group but the root has it.
    match fs::exists(group.join("cgroup.events")) {
        Ok(true) => Ok(()),
        Ok(false) => Err(problem::ROOT.to_owned()),
        Err(error) => Err(problem::not_opened(&error)),
    }
}

fn is_gone(group: &Path) -> bool {
    matches!(fs::exists(group), Ok(false))
}

/// Attaches the program. Everything that was in force before still is afterwards, or else the program is detached again.
fn attach(group: BorrowedFd<'_>, new: BorrowedFd<'_>) -> Result<(), String> {
    let before = effective(group)?;
    bpf::attach(group, new, bpf::ALLOW_MULTI).map_err(|error| problem::not_attached(&error))?;
    verify(group, new, &before).map_err(|problem| match bpf::detach(group, new) {
        Ok(()) => problem,
        Err(error) => format!("{problem}; {}", problem::not_lifted(&error)),
    })
}

fn verify(group: BorrowedFd<'_>, new: BorrowedFd<'_>, before: &[u32]) -> Result<(), String> {
    let after = effective(group)?;
    if !after.contains(&bpf::id(new).map_err(|error| problem::not_read(&error))?) {
        return Err(problem::NOT_IN_FORCE.to_owned());
    }
    let is_kept = before.iter().all(|id| after.contains(id));
    if is_kept { Ok(()) } else { Err(problem::OVERRIDES.to_owned()) }
}

fn effective(group: BorrowedFd<'_>) -> Result<Vec<u32>, String> {
    bpf::query(group, Scope::Effective).map_err(|error| problem::not_read(&error))
}

/// Tries to detach all of them; returns the first error.
fn detach(group: BorrowedFd<'_>, old: &[Ours]) -> io::Result<()> {
    let detached = old.iter().map(|old| match bpf::detach(group, old.program.as_fd()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    });
    detached.fold(Ok(()), Result::and)
}

/// Our programs in this group, without those of the groups above.
fn ours(group: BorrowedFd<'_>) -> Result<Vec<Ours>, String> {
    let ids = bpf::query(group, Scope::Attached);
    let ours = ids.and_then(|ids| ids.into_iter().filter_map(|id| our_program(id).transpose()).collect());
    ours.map_err(|error| problem::not_read(&error))
}

fn our_program(id: u32) -> io::Result<Option<Ours>> {
    let program = match bpf::fetch(id) {
        Ok(program) => program,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A security module hides it from us. It would not hide one of ours.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && may_fetch() => return Ok(None),
        Err(error) => return Err(error),
    };
    if bpf::name(program.as_fd())? != NAME {
        return Ok(None);
    }
    match bpf::instructions(program.as_fd())?.filter(|shown| !is_blinded(shown)) {
        // Recognised by its name alone: otherwise it could never be detached on a hardened host.
        None => Ok(Some(Ours { program, denied: None })),
        // A program with our name but a different form is not ours.
        Some(shown) => Ok(decode(&shown).map(|denied| Ours { program, denied: Some(denied) })),
    }
}

/// Whether we have the privilege to open programs. It is checked before the id is looked up, and no program has this id.
fn may_fetch() -> bool {
    bpf::fetch(u32::MAX).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
