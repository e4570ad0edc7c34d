//! Loading a device program.

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::ffi::{CStr, c_long};
use std::io;
use std::os::fd::OwnedFd;

use super::arguments::Arguments;
use super::memlock::Raised;
use super::program::Instruction;

const PROG_LOAD: c_long = 5;

/// `BPF_PROG_TYPE_CGROUP_DEVICE`
const DEVICE_PROGRAM: u32 = 15;

const LICENSE: &CStr = c"Dual MIT/GPL";
const MOST_ATTEMPTS: usize = 10;
const LOG_SIZE: usize = 1 << 16;

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

/// `name`: at most 15 letters, digits or `_`.
pub(super) fn load(name: &str, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    match load_once(name, instructions, &mut []) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => match Raised::own() {
            Ok(_raised) => load_once(name, instructions, &mut []),
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
    // SAFETY: instructions and log have the stated sizes, the license is NUL-terminated, and all outlive the call.
    persist(|| unsafe { arguments.open(PROG_LOAD) })
}

/// Tries again if a signal interrupted the kernel while it loaded the program.
fn persist<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let is_interrupted = |error: &io::Error| error.raw_os_error() == Some(libc::EAGAIN);
    let mut outcome = attempt();
    for _ in 1..MOST_ATTEMPTS {
        if !outcome.as_ref().is_err_and(is_interrupted) {
            break;
        }
        outcome = attempt();
    }
    outcome
}

/// Adds the verifier's explanation, for which the program is loaded a second time, since a log costs time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn an_interrupted_load_is_tried_again() {
        let (again, never) = (libc::EAGAIN, libc::EINVAL);
        for (case, failures, attempts, error) in [
            ("no failure",     vec![],                  1,  None),
            ("a signal",       vec![again],             2,  None),
            ("signals",        vec![again; 9],          10, None),
            ("without an end", vec![again; 1000],       10, Some(again)),
            ("another",        vec![again, never],      2,  Some(never)),
        ] {
            let mut count = 0;
            let outcome = persist(|| {
                count += 1;
                failures.get(count - 1).map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(*error)))
            });
            let failure = outcome.err().and_then(|error| error.raw_os_error());
            assert_eq!((count, failure), (attempts, error), "{case}");
        }
    }
}
