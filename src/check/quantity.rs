//! Quantities as Kubernetes writes them: `2`, `"2"`, `2000m`, `1Ki`, `1e3`.
//!
//! Source: kubernetes.io, "Quantity" in the API reference.

/// Why a text is not an amount of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    NoQuantity,
    /// Negative, or a fraction.
    NotWhole,
}

/// A whole number of units. A larger one than a `u128` holds becomes the largest.
pub(super) fn whole(text: &str) -> Result<u128, Mistake> {
    let (is_negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let end = digits.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (before, after) = number.split_once('.').unwrap_or((number, ""));
    let after = after.trim_end_matches('0');
    if number.is_empty() || number == "." || after.contains('.') {
        return Err(Mistake::NoQuantity);
    }
    let (base, exponent) = scale(suffix).ok_or(Mistake::NoQuantity)?;
    let digits = format!("{before}{after}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Ok(0);
    }
    if is_negative {
        return Err(Mistake::NotWhole);
    }
    scaled(digits.trim_start_matches('0'), after.len(), base, exponent).ok_or(Mistake::NotWhole)
}

/// The factor of a suffix, as base and exponent.
fn scale(suffix: &str) -> Option<(u128, i32)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(at) = binary.iter().position(|it| *it == suffix) {
        return Some((1024, i32::try_from(at).ok()? + 1));
    }
    if let Some(at) = decimal.iter().position(|it| *it == suffix) {
        return Some((10, 3 * (i32::try_from(at).ok()? - 3)));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((10, exponent.parse().ok().filter(|exponent: &i32| exponent.abs() <= 1000)?))
}

/// `digits`, the last `fraction` of which are behind the point and which are not 0, times a power. `None` if that is not
/// a whole number.
fn scaled(digits: &str, fraction: usize, base: u128, exponent: i32) -> Option<u128> {
    let mut number: u128 = digits.parse().unwrap_or(u128::MAX);
    let divisions = fraction + if exponent < 0 { exponent.unsigned_abs() as usize } else { 0 };
    for _ in 0..exponent {
        number = number.saturating_mul(base);
    }
    for _ in 0..divisions {
        if !number.is_multiple_of(10) {
            return None;
        }
        number /= 10;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn quantities() {
        use Mistake::{NoQuantity, NotWhole};
        for (text, expected) in [
            ("0",      Ok(0)),
            ("2",      Ok(2)),
            ("+2",     Ok(2)),
            ("02",     Ok(2)),
            ("2.0",    Ok(2)),
            ("2.",     Ok(2)),
            ("2000m",  Ok(2)),
            ("0.5k",   Ok(500)),
            ("1k",     Ok(1000)),
            ("1Ki",    Ok(1024)),
            ("0.5Ki",  Ok(512)),
            ("1e3",    Ok(1000)),
            ("20e-1",  Ok(2)),
            ("-0",     Ok(0)),
            ("0m",     Ok(0)),
            ("99999999999999999999999999999999999999999", Ok(u128::MAX)),
            ("1e999",  Ok(u128::MAX)),
            ("0.5",    Err(NotWhole)),
            (".5",     Err(NotWhole)),
            ("500m",   Err(NotWhole)),
            ("1.5",    Err(NotWhole)),
            ("-1",     Err(NotWhole)),
            ("1e-1",   Err(NotWhole)),
            ("",       Err(NoQuantity)),
            (".",      Err(NoQuantity)),
            ("-",      Err(NoQuantity)),
            ("two",    Err(NoQuantity)),
            ("1.2.3",  Err(NoQuantity)),
            ("1 ",     Err(NoQuantity)),
            ("1GB",    Err(NoQuantity)),
            ("1e",     Err(NoQuantity)),
            ("1e9999", Err(NoQuantity)),
            ("all",    Err(NoQuantity)),
        ] {
            assert_eq!(whole(text), expected, "{text}");
        }
    }
}
