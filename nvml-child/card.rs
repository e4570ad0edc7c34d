//! One card: every question that NVML is asked about it.

use nvml_wrapper::enum_wrappers::device::{ComputeMode, EccCounter, MemoryError};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING,
};
use nvml_wrapper::{Device, Nvml};
use serde_json::{Value, json};

use crate::{failure, instance, raw};

/// How often a list is asked for that grows meanwhile.
const TRIES: u32 = 3;

pub(crate) fn describe(nvml: &Nvml, index: u32) -> Value {
    match nvml.device_by_index(index) {
        Ok(card) => questions(&card, index),
        Err(error) => json!({ "index": index, "trouble": failure::describe(error) }),
    }
}

fn questions(card: &Device<'_>, index: u32) -> Value {
    let mut trouble = Trouble(None);
    let mut value = json!({
        "index": index,
        "uuid": trouble.heed(card.uuid()),
        "pci": trouble.heed(pci(card)),
        "name": trouble.heed(card.name()),
        "minor": trouble.heed(card.minor_number()),
        "memory": trouble.heed(memory(card)),
        "processes": trouble.heed(processes(card)),
        "compute_mode": trouble.heed(card.compute_mode().map(word)),
        "persistence_mode": trouble.heed(card.is_in_persistent_mode()),
        "uncorrected_errors": trouble.heed(card.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)),
        "remap_failed": trouble.heed(field(card, NVML_FI_DEV_REMAPPED_FAILURE)),
        "remap_pending": trouble.heed(field(card, NVML_FI_DEV_REMAPPED_PENDING)),
        "recovery_action": trouble.heed(field(card, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)),
        "is_divided": trouble.heed(instance::is_divided(card)),
    });
    if value["is_divided"] == true {
        value["instances"] = trouble.heed(instance::list(card)).into();
    }
    value["trouble"] = trouble.0.map(failure::describe).into();
    value
}

/// The first error that speaks of the card, and not of the question.
struct Trouble(Option<NvmlError>);

impl Trouble {
    fn heed<T>(&mut self, answer: Result<T, NvmlError>) -> Option<T> {
        match answer {
            Ok(answer) => return Some(answer),
            Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => {
                self.0.get_or_insert(error);
            }
            Err(_) => {}
        }
        None
    }
}

fn pci(card: &Device<'_>) -> Result<String, NvmlError> {
    card.pci_info().map(|info| info.bus_id).or_else(|_| raw::pci(card))
}

fn memory(card: &Device<'_>) -> Result<Value, NvmlError> {
    let memory = card.memory_info().map(|memory| (memory.total, memory.used));
    memory.or_else(|_| raw::memory(card)).map(|(total, used)| json!({ "total": total, "used": used }))
}

/// The second form comes first: drivers 535.43 to 535.86 write larger entries in the third than it has.
fn processes(card: &Device<'_>) -> Result<Vec<Value>, NvmlError> {
    let told = patiently(|| card.running_compute_processes_v2().map(pairs))
        .or_else(|_| patiently(|| card.running_compute_processes().map(pairs)))
        .or_else(|_| patiently(|| raw::processes(card)))?;
    Ok(told.into_iter().map(process).collect())
}

fn pairs(told: Vec<ProcessInfo>) -> Vec<(u32, UsedGpuMemory)> {
    told.into_iter().map(|process| (process.pid, process.used_gpu_memory)).collect()
}

/// Asks again while there is more than there was room for.
fn patiently<T>(ask: impl Fn() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    let mut answer = ask();
    for _ in 1..TRIES {
        if !matches!(answer, Err(NvmlError::InsufficientSize(_))) {
            break;
        }
        answer = ask();
    }
    answer
}

fn process((pid, memory): (u32, UsedGpuMemory)) -> Value {
    let memory = match memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    json!({ "pid": pid, "memory": memory })
}

/// As nvidia-smi prints it.
fn word(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "Default",
        ComputeMode::ExclusiveThread => "Exclusive_Thread",
        ComputeMode::Prohibited => "Prohibited",
        ComputeMode::ExclusiveProcess => "Exclusive_Process",
    }
}

/// Each by a call of its own: a driver may refuse a whole list for one field that it does not know.
fn field(card: &Device<'_>, id: u32) -> Result<u64, NvmlError> {
    let sample = card.field_values_for(&[FieldId(id)])?.into_iter().next().ok_or(NvmlError::NoData)??;
    match sample.value? {
        SampleValue::U32(value) => Ok(value.into()),
        SampleValue::U64(value) => Ok(value),
        SampleValue::I64(value) => value.try_into().map_err(|_| NvmlError::NoData),
        SampleValue::F64(_) => Err(NvmlError::NoData),
    }
}
