//! Operations on loaded device programs, through bpf(2).
//!
//! Not here: loading a program (`load`), what it does (`program`), and which are ours (the module above).

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::arguments::Arguments;
use super::program::Instruction;

const PROG_ATTACH: c_long = 8;
const PROG_DETACH: c_long = 9;
const PROG_GET_FD_BY_ID: c_long = 13;
const OBJ_GET_INFO_BY_FD: c_long = 15;
const PROG_QUERY: c_long = 16;

/// `BPF_CGROUP_DEVICE`
const DEVICE_ATTACHMENT: u32 = 6;

/// `BPF_F_ALLOW_MULTI`: together with other programs, in the group and below it, all of which must allow.
pub(super) const ALLOW_MULTI: u32 = 2;

/// As many programs as one group can have. Together with those of the groups above, more can be in force.
const ROOM: usize = 64;
const MOST_ROOM: usize = 1 << 16;

/// Which programs of a group a query is about.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    Attached = 0,
    /// `BPF_F_QUERY_EFFECTIVE`: including those of the groups above.
    Effective = 1,
}

#[repr(C)]
struct Attach {
    group: RawFd,
    program: RawFd,
    kind: u32,
    flags: u32,
}

#[repr(C)]
struct Query {
    group: RawFd,
    kind: u32,
    flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    unused: u32,
}

#[repr(C)]
struct Fetch {
    id: u32,
    unused: u32,
}

#[repr(C)]
struct Inform {
    program: RawFd,
    size: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    machine_size: u32,
    size: u32,
    machine_code: u64,
    instructions: u64,
    load_time: u64,
    uid: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
}

pub(super) fn attach(group: BorrowedFd<'_>, program: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    attachment(PROG_ATTACH, group, program, flags)
}

/// The program must be one of the group's own: if only one can be attached, the kernel detaches that one, whichever is
/// named.
pub(super) fn detach(group: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    attachment(PROG_DETACH, group, program, 0)
}

fn attachment(command: c_long, group: BorrowedFd<'_>, program: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let (group, program) = (group.as_raw_fd(), program.as_raw_fd());
    let mut arguments = Arguments::new(Attach { group, program, kind: DEVICE_ATTACHMENT, flags });
    // SAFETY: the arguments contain no address.
    unsafe { arguments.call(command) }.map(|_| ())
}

/// The ids of programs.
pub(super) fn query(group: BorrowedFd<'_>, scope: Scope) -> io::Result<Vec<u32>> {
    let mut room = ROOM;
    loop {
        match query_once(group, scope, room) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && room < MOST_ROOM => room *= 2,
            answer => return answer,
        }
    }
}

fn query_once(group: BorrowedFd<'_>, scope: Scope, room: usize) -> io::Result<Vec<u32>> {
    let mut ids = vec![0_u32; room];
    let mut arguments = Arguments::new(Query {
        group: group.as_raw_fd(),
        kind: DEVICE_ATTACHMENT,
        flags: scope as u32,
        attach_flags: 0,
        ids: ids.as_mut_ptr() as u64,
        count: room.try_into().map_err(io::Error::other)?,
        unused: 0,
    });
    // SAFETY: there is room for `count` ids, and it outlives the call.
    unsafe { arguments.call(PROG_QUERY)? };
    // The kernel puts 0 in the place of a program that it failed to remove.
    ids.retain(|id| *id != 0);
    Ok(ids)
}

/// Opens a program by its id, which requires CAP_SYS_ADMIN. `NotFound` if it is gone.
pub(super) fn fetch(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the arguments contain no address, and the command opens a descriptor.
    unsafe { Arguments::new(Fetch { id, unused: 0 }).open(PROG_GET_FD_BY_ID) }
}

pub(super) fn id(program: BorrowedFd<'_>) -> io::Result<u32> {
    inform(program, &mut []).map(|info| info.id)
}

pub(super) fn name(program: BorrowedFd<'_>) -> io::Result<String> {
    let name = inform(program, &mut [])?.name;
    Ok(String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned())
}

/// The instructions as the kernel runs them; `None` if it does not show them.
pub(super) fn instructions(program: BorrowedFd<'_>) -> io::Result<Option<Vec<Instruction>>> {
    let size = usize::try_from(inform(program, &mut [])?.size).map_err(io::Error::other)?;
    let mut instructions = vec![Instruction::default(); size / size_of::<Instruction>()];
    let info = inform(program, &mut instructions)?;
    // The kernel silently clears the address for a blinded program, and the size for a caller without privileges.
    Ok((info.instructions != 0).then_some(instructions))
}

fn inform(program: BorrowedFd<'_>, instructions: &mut [Instruction]) -> io::Result<Info> {
    let size = size_of_val(instructions).try_into().map_err(io::Error::other)?;
    let address = if instructions.is_empty() { 0 } else { instructions.as_mut_ptr() as u64 };
    let mut info = Info { size, instructions: address, ..Info::default() };
    let mut arguments = Arguments::new(Inform {
        program: program.as_raw_fd(),
        size: size_of::<Info>() as u32,
        info: &raw mut info as u64,
    });
    // SAFETY: the kernel writes at most the sizes of both, any bits are valid, and both outlive the call.
    unsafe { arguments.call(OBJ_GET_INFO_BY_FD)? };
    Ok(info)
}
