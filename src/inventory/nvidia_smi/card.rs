//! A card, and the values and non-values that `nvidia-smi` prints for it.

use crate::device::Device;

/// What a row says about a card.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) device: Device,
    pub(super) driver_version: Option<String>,
    /// `None` if it is not known, which is not "no".
    pub(super) is_divided: Option<bool>,
}

impl Card {
    pub(super) fn new(device: Device) -> Card {
        Card { device, driver_version: None, is_divided: None }
    }

    /// The device. A divided one is never offered as a whole; its instances are looked up afterwards.
    pub(super) fn described(self) -> Device {
        Device {
            instances: self.is_divided.filter(|is_divided| *is_divided).map(|_| Vec::new()),
            ..self.device
        }
    }
}

pub(super) fn is_non_value(text: &str) -> bool {
    text == "N/A" || (text.starts_with('[') && text.ends_with(']'))
}

/// `Some(None)` for a non-value, `None` for something that is not a number.
pub(super) fn number(text: &str) -> Option<Option<u64>> {
    if is_non_value(text) {
        return Some(None);
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).map(Some)
}
