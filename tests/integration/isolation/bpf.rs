//! Device programs that are not gpu-coord's, by bpf(2) itself.

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// `BPF_F_ALLOW_OVERRIDE` is 1.
pub(crate) const EXCLUSIVE: u32 = 0;
pub(crate) const MULTI: u32 = 2;

const LOAD: i32 = 5;
const ATTACH: i32 = 8;
const FETCH: i32 = 13;
const QUERY: i32 = 16;
/// `BPF_PROG_TYPE_CGROUP_DEVICE` and `BPF_CGROUP_DEVICE`.
const DEVICE: (u64, u64) = (15, 6);

/// The arguments of bpf(2) in words of eight bytes, with zeros behind them.
fn call(command: i32, words: &[u64]) -> io::Result<i32> {
    let mut arguments = [0_u64; 32];
    arguments[..words.len()].copy_from_slice(words);
    // SAFETY: every address in the words is that of something which lives in our caller's caller.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, arguments.as_mut_ptr(), 128) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(i32::try_from(result).unwrap()) }
}

fn pair(low: u64, high: u64) -> u64 {
    low | high << 32
}

/// A program that denies one device and no other.
pub(crate) fn denying(major: u64, minor: u64) -> OwnedFd {
    let instruction = |code: u64, registers: u64, offset: u64, number: u64| {
        code | registers << 8 | offset << 16 | number << 32
    };
    let code = [
        instruction(0x61, 0x12, 4, 0),     // r2 = major
        instruction(0x61, 0x13, 8, 0),     // r3 = minor
        instruction(0x55, 0x02, 3, major), // if r2 != major, on
        instruction(0x55, 0x03, 2, minor),
        instruction(0xb7, 0x00, 0, 0), // r0 = 0
        instruction(0x95, 0, 0, 0),    // exit
        instruction(0xb7, 0x00, 0, 1),
        instruction(0x95, 0, 0, 0),
    ];
    let license = c"Dual MIT/GPL";
    let words = [pair(DEVICE.0, code.len() as u64), code.as_ptr() as u64, license.as_ptr() as u64];
    let fd = call(LOAD, &words).unwrap();
    // SAFETY: the descriptor is new, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(crate) fn attach(group: &Path, program: &OwnedFd, flags: u32) {
    let directory = File::open(group).unwrap();
    let number = |fd: i32| u64::try_from(fd).unwrap();
    let first = pair(number(directory.as_raw_fd()), number(program.as_raw_fd()));
    call(ATTACH, &[first, pair(DEVICE.1, flags.into())]).unwrap();
}

/// The identities of the programs that are attached to the group itself.
pub(crate) fn attached(group: &Path) -> Vec<u32> {
    let directory = File::open(group).unwrap();
    let mut ids = [0_u32; 64];
    let mut words = [pair(u64::try_from(directory.as_raw_fd()).unwrap(), DEVICE.1), 0, 0, 64];
    words[2] = ids.as_mut_ptr() as u64;
    call(QUERY, &words).unwrap();
    ids.into_iter().filter(|id| *id != 0).collect()
}

/// Whether the kernel has a program of this identity.
pub(crate) fn is_loaded(id: u32) -> bool {
    // SAFETY: the descriptor is new, and nobody else's.
    call(FETCH, &[id.into()]).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).is_ok()
}
