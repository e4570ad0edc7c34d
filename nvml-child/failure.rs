//! Why a call failed: NVML's return code and a text.

use nvml_wrapper::error::NvmlError;
use serde_json::{Value, json};

/// NVML's own code for a library that is not found.
const LIBRARY_NOT_FOUND: u32 = 12;
/// And for a function that is not in it.
const FUNCTION_NOT_FOUND: u32 = 13;

pub(crate) fn describe(error: NvmlError) -> Value {
    let text = match &error {
        // The loader says itself what it looked for.
        NvmlError::LibloadingError(error) => error.to_string(),
        other => other.to_string(),
    };
    let code = match error {
        NvmlError::LibloadingError(_) => LIBRARY_NOT_FOUND,
        NvmlError::FailedToLoadSymbol(_) => FUNCTION_NOT_FOUND,
        // The wrapper's own errors are 999, NVML's "unknown".
        other => other.into(),
    };
    json!({ "code": code, "text": text })
}
