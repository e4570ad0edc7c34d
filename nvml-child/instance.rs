//! The MIG instances of a card.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use serde_json::{Value, json};

use crate::raw;

const ENABLED: u32 = 1;

/// Whether the card is divided. Any other error than these leaves it open.
pub(crate) fn is_divided(card: &Device<'_>) -> Result<bool, NvmlError> {
    match card.mig_mode() {
        Ok(mode) => Ok(mode.current == ENABLED),
        // A card, and a driver, that knows nothing of it.
        Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Their places are numbered, and most are empty.
pub(crate) fn list(card: &Device<'_>) -> Result<Vec<Value>, NvmlError> {
    let mut instances = Vec::new();
    for place in 0..card.mig_device_count()? {
        match card.mig_device_by_index(place) {
            Ok(instance) => instances.push(describe(&instance)),
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(instances)
}

fn describe(instance: &Device<'_>) -> Value {
    json!({
        "uuid": instance.uuid().ok(),
        "name": instance.name().ok(),
        "gpu_instance": raw::gpu_instance(instance).ok(),
        "compute_instance": raw::compute_instance(instance).ok(),
        "memory_mib": instance.attributes().ok().map(|attributes| attributes.memory_size_mb),
    })
}
