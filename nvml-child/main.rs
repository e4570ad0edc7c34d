//! The child of `gpu-coord` that asks NVML: a dynamic program, since it must load the host's library.
//!
//! It runs in a process of its own because the driver can hang in the kernel, and has crashed its callers.
//! `gpu-coord-nvml [LIBRARY]` prints one line, `gpu-coord-nvml 1 JSON`:
//!
//! * The line begins with a mark, and stands apart from whatever the library prints beside it.
//! * A call that fails loses the field that it was made for, and a card that cannot be reached only itself.
//! * It needs what every driver since 319 (2013) has; of what came later, older forms are asked for too.
//!
//! `src/inventory/nvml/report.rs` reads it, and judges what it means.

mod card;
mod failure;
mod instance;
mod raw;

use std::env;
use std::fs;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::process::ExitCode;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde_json::{Value, json};

const MARK: &str = "gpu-coord-nvml 1";
/// Found as the dynamic loader finds libraries.
const LIBRARY: &str = "libnvidia-ml.so.1";

fn main() -> ExitCode {
    // Run from memory, it would be called by the number of a descriptor.
    let _ = fs::write("/proc/self/comm", env!("CARGO_BIN_NAME"));
    let library = env::args_os().nth(1).unwrap_or_else(|| LIBRARY.into());
    // Never shut down: the kernel takes everything back at the exit, and a driver that hangs or crashes over
    // it would cost the answer.
    let report = match Nvml::builder().lib_path(&library).init().map(ManuallyDrop::new) {
        Ok(nvml) => describe(&nvml).unwrap_or_else(failed),
        Err(error) => failed(error),
    };
    match print(&report) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn describe(nvml: &Nvml) -> Result<Value, NvmlError> {
    let count = nvml.device_count()?;
    let devices: Vec<Value> = (0..count).map(|index| card::describe(nvml, index)).collect();
    Ok(json!({ "driver": nvml.sys_driver_version().ok(), "devices": devices }))
}

fn failed(error: NvmlError) -> Value {
    json!({ "error": failure::describe(error) })
}

/// On a line of its own, in one write, whatever the library has left on the line before.
fn print(report: &Value) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("\n{MARK} {report}\n").as_bytes())?;
    stdout.flush()
}
