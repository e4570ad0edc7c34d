//! bpf(2), as far as the device programs of control groups need it.
//!
//! * A descriptor is closed on exec (the kernel's doing) and is never 0, which some commands take for none.
//! * Every command gets zeros behind its arguments: a kernel may write to fields that were added later
//!   (Linux 6.17 writes `revision` at byte 56 of a query, however much was passed).
//!
//! Not here: what a program does (`program`), and which of them are ours (the module above).

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::memlock::Unlimited;
use super::program::Instruction;

const PROG_LOAD: c_long = 5;
const PROG_ATTACH: c_long = 8;
const PROG_DETACH: c_long = 9;
const PROG_GET_FD_BY_ID: c_long = 13;
const OBJ_GET_INFO_BY_FD: c_long = 15;
const PROG_QUERY: c_long = 16;

/// `BPF_PROG_TYPE_CGROUP_DEVICE`
const DEVICE_PROGRAM: u32 = 15;
/// `BPF_CGROUP_DEVICE`
const DEVICE_ATTACHMENT: u32 = 6;

/// `BPF_F_ALLOW_MULTI`: beside other programs, in the group and below it. All of them must allow.
pub(super) const ALLOW_MULTI: u32 = 2;

const LICENSE: &[u8] = b"Dual MIT/GPL\0";
/// The kernel gives up a load when a signal comes in between.
const MOST_ATTEMPTS: usize = 10;
/// As many as one group can have. More are in force together with those above it.
const ROOM: usize = 64;
const MOST_ROOM: usize = 1 << 16;
const LOG_SIZE: usize = 1 << 16;

/// Which programs of a group a query is about.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    Attached = 0,
    /// `BPF_F_QUERY_EFFECTIVE`: those of the groups above too.
    Effective = 1,
}

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
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

/// What a command reads and writes, with zeros behind it.
#[repr(C)]
struct Arguments<T> {
    of: T,
    zeros: [u64; 8],
}

impl<T> Arguments<T> {
    fn new(of: T) -> Arguments<T> {
        const { assert!(size_of::<T>().is_multiple_of(size_of::<u64>())) }; // no padding, which would be no zeros
        Arguments { of, zeros: [0; 8] }
    }

    /// # Safety
    /// What the arguments give the address of must be there, as long as they say.
    unsafe fn call(&mut self, command: c_long) -> io::Result<c_int> {
        // SAFETY: the kernel reads and writes within the size, and any bits are a value of the arguments.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *self, size_of::<Self>()) };
        let result = if result < 0 { return Err(io::Error::last_os_error()) } else { result };
        c_int::try_from(result).map_err(io::Error::other)
    }

    /// # Safety
    /// As of `call`; the command is one that makes a descriptor.
    unsafe fn open(&mut self, command: c_long) -> io::Result<OwnedFd> {
        // SAFETY: as our caller promised; the descriptor is new, and nobody else's.
        let made = unsafe { OwnedFd::from_raw_fd(self.call(command)?) };
        // A copy is never one of the three streams.
        if made.as_raw_fd() <= libc::STDERR_FILENO { made.try_clone() } else { Ok(made) }
    }
}

/// The name has at most 15 letters, digits or `_`.
pub(super) fn load(name: &str, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    match load_once(name, instructions, &mut []) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => match Unlimited::new() {
            Ok(_unlimited) => load_once(name, instructions, &mut []),
            Err(_) => Err(error),
        },
        Err(error) => Err(explained(error, name, instructions)),
        loaded => loaded,
    }
}

fn load_once(name: &str, instructions: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    let count = instructions.len().try_into().map_err(io::Error::other)?;
    let mut load = Load { kind: DEVICE_PROGRAM, count, ..Load::default() };
    load.instructions = instructions.as_ptr() as u64;
    load.license = LICENSE.as_ptr() as u64;
    // The last byte stays 0.
    load.name.iter_mut().take(15).zip(name.bytes()).for_each(|(to, from)| *to = from);
    if !log.is_empty() {
        (load.log_level, load.log_size) = (1, log.len().try_into().map_err(io::Error::other)?);
        load.log = log.as_mut_ptr() as u64;
    }
    let mut arguments = Arguments::new(load);
    // SAFETY: instructions and log are as long as said, the license ends with a zero, and all outlive the call.
    let mut attempts = (0..MOST_ATTEMPTS).map(|_| unsafe { arguments.open(PROG_LOAD) });
    let is_final = |loaded: &io::Result<OwnedFd>| !loaded.as_ref().is_err_and(is_interrupted);
    attempts.find(is_final).unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EAGAIN)))
}

fn is_interrupted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

/// With what the verifier says about it, which it is asked for a second time: a log costs time.
fn explained(error: io::Error, name: &str, instructions: &[Instruction]) -> io::Error {
    let mut log = vec![0; LOG_SIZE];
    let _ = load_once(name, instructions, &mut log);
    let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default());
    // The last line is a count; the reason is before it.
    let reason = text.lines().rfind(|line| !line.is_empty() && !line.starts_with("processed "));
    match reason {
        Some(reason) => io::Error::new(error.kind(), format!("{error}: {reason}")),
        None => error,
    }
}

pub(super) fn attach(group: BorrowedFd<'_>, program: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    attachment(PROG_ATTACH, group, program, flags)
}

/// The program must be known to be one of the group's own: where only one can be attached, the kernel detaches
/// that, whichever is named.
pub(super) fn detach(group: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    attachment(PROG_DETACH, group, program, 0)
}

fn attachment(command: c_long, group: BorrowedFd<'_>, program: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let (group, program) = (group.as_raw_fd(), program.as_raw_fd());
    let mut arguments = Arguments::new(Attach { group, program, kind: DEVICE_ATTACHMENT, flags });
    // SAFETY: the arguments have no address.
    unsafe { arguments.call(command) }.map(|_| ())
}

/// The identities of programs.
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
    // SAFETY: there is room for as many as said, and it outlives the call.
    unsafe { arguments.call(PROG_QUERY)? };
    // The kernel fills the place of one that it failed to take out with a 0.
    ids.retain(|id| *id != 0);
    Ok(ids)
}

/// A program by its identity, which takes CAP_SYS_ADMIN. `NotFound` if it is gone.
pub(super) fn fetch(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the arguments have no address, and the command makes a descriptor.
    unsafe { Arguments::new(Fetch { id, unused: 0 }).open(PROG_GET_FD_BY_ID) }
}

pub(super) fn id(program: BorrowedFd<'_>) -> io::Result<u32> {
    inform(program, &mut []).map(|info| info.id)
}

pub(super) fn name(program: BorrowedFd<'_>) -> io::Result<String> {
    let name = inform(program, &mut [])?.name;
    Ok(String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned())
}

/// As the kernel runs it; `None` if it does not show it.
pub(super) fn instructions(program: BorrowedFd<'_>) -> io::Result<Option<Vec<Instruction>>> {
    let size = usize::try_from(inform(program, &mut [])?.size).map_err(io::Error::other)?;
    let mut instructions = vec![Instruction::default(); size / size_of::<Instruction>()];
    let info = inform(program, &mut instructions)?;
    // Without rights there is no size. One that was blinded has its size, no address, and nothing was written.
    Ok((info.size != 0 && info.instructions != 0).then_some(instructions))
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
    // SAFETY: the kernel writes at most the sizes that both have, any bits are a value, and both outlive it.
    unsafe { arguments.call(OBJ_GET_INFO_BY_FD)? };
    Ok(info)
}
