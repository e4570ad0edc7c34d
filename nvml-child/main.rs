//! The child of `gpu-coord` that asks NVML: a dynamic program, since it must load the host's library.
//!
//! It runs in a process of its own because the driver can hang in the kernel, and has crashed its callers.

use std::process::ExitCode;

fn main() -> ExitCode {
    let found = nvml_wrapper::Nvml::init().and_then(|nvml| nvml.device_count());
    ExitCode::from(u8::from(found.is_err()))
}
