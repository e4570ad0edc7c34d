//! What NVML's return codes mean, for the host and for one card.

use serde::Deserialize;

use crate::inventory::answer::Silence;
use crate::inventory::nvidia_smi;
use crate::inventory::text::quote;

const NO_PERMISSION: u32 = 4;
const NOT_LOADED: u32 = 9;
const LIBRARY_NOT_FOUND: u32 = 12;
const FUNCTION_NOT_FOUND: u32 = 13;
const LOST: u32 = 15;
const RESET_REQUIRED: u32 = 16;

/// Why a call failed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) code: u32,
    /// The wrapper's or the loader's description.
    pub(super) text: String,
}

impl Trouble {
    /// The meaning if NVML as a whole cannot be asked. A missing library is no problem where nothing of NVIDIA's exists.
    pub(super) fn silence(self, is_expected: impl FnOnce() -> bool) -> Silence {
        let text = quote(&self.text);
        if matches!(self.code, LIBRARY_NOT_FOUND | NOT_LOADED) && !is_expected() {
            return Silence::Absent(text);
        }
        let (what, cure) = nvidia_smi::cause(self.code.try_into().unwrap_or(i32::MAX));
        // The loader's text names the library or the function.
        let names_it = matches!(self.code, LIBRARY_NOT_FOUND | FUNCTION_NOT_FOUND);
        let what = if names_it || what == nvidia_smi::UNNAMED { text } else { what.to_owned() };
        Silence::Broken { why: anyhow::Error::msg(what), cure }
    }

    /// Whether no program can reach the card.
    pub(super) fn is_lost(&self) -> bool {
        self.code == LOST
    }

    /// The meaning for one card.
    pub(super) fn of_card(&self) -> String {
        match self.code {
            NO_PERMISSION => "no permission to use it".to_owned(),
            LOST => "it is lost: it has fallen off the bus, or cannot be reached".to_owned(),
            RESET_REQUIRED => "it needs a reset before it can be used".to_owned(),
            _ => quote(&self.text),
        }
    }
}
