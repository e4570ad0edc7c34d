//! What `nvml-wrapper` has no safe form of: calls of old drivers, and the ids of a MIG instance.
//!
//! A symbol is looked at before it is called: the wrapper's own methods panic where it is missing.

#![expect(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CStr, c_char};
use std::mem;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try, nvml_try_count};

/// How many processes may have come between their count and their list.
const HEADROOM: u32 = 8;

/// Total and used bytes, as drivers before 510 tell them.
pub(crate) fn memory(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let get = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    // SAFETY: a structure of numbers, and a handle that lives as long as `device`.
    let memory = unsafe {
        let mut memory = mem::zeroed();
        nvml_try(get(device.handle(), &mut memory))?;
        memory
    };
    Ok((memory.total, memory.used))
}

/// The PCI address with a domain of four digits, as drivers before 390 tell it.
pub(crate) fn pci(device: &Device<'_>) -> Result<String, NvmlError> {
    let lib = device.nvml().lib();
    let get = nvml_sym(lib.nvmlDeviceGetPciInfo_v2.as_ref())
        .or_else(|_| nvml_sym(lib.nvmlDeviceGetPciInfo.as_ref()))?;
    // SAFETY: the structure of these two is a beginning of the one that is given.
    let info = unsafe {
        let mut info = mem::zeroed();
        nvml_try(get(device.handle(), &mut info))?;
        info
    };
    Ok(text(&info.busIdLegacy))
}

/// Pids and the memory that they use, as drivers before 450 tell them.
pub(crate) fn processes(device: &Device<'_>) -> Result<Vec<(u32, UsedGpuMemory)>, NvmlError> {
    let get = nvml_sym(device.nvml().lib().nvmlDeviceGetComputeRunningProcesses.as_ref())?;
    let mut count = 0;
    // SAFETY: with a count of zero nothing is written but the count; then there is room for as many as it says.
    let mut told = unsafe {
        nvml_try_count(get(device.handle(), &mut count, std::ptr::null_mut()))?;
        count += HEADROOM;
        let mut told = vec![mem::zeroed(); count as usize];
        nvml_try(get(device.handle(), &mut count, told.as_mut_ptr()))?;
        told
    };
    told.truncate(count as usize);
    Ok(told.into_iter().map(|process| (process.pid, process.usedGpuMemory.into())).collect())
}

/// The ids of a MIG instance: of its GPU instance, and of its compute instance in that.
pub(crate) fn gpu_instance(instance: &Device<'_>) -> Result<u32, NvmlError> {
    let get = nvml_sym(instance.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: a number, and a handle that lives as long as `instance`.
    nvml_try(unsafe { get(instance.handle(), &mut id) }).map(|()| id)
}

pub(crate) fn compute_instance(instance: &Device<'_>) -> Result<u32, NvmlError> {
    let get = nvml_sym(instance.nvml().lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: a number, and a handle that lives as long as `instance`.
    nvml_try(unsafe { get(instance.handle(), &mut id) }).map(|()| id)
}

fn text(chars: &[c_char]) -> String {
    // Signed on one architecture, unsigned on another.
    let bytes: Vec<u8> = chars.iter().flat_map(|char| char.to_ne_bytes()).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_bytes).unwrap_or(&bytes);
    String::from_utf8_lossy(text).into_owned()
}
