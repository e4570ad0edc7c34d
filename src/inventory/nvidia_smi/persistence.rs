//! Persistence mode, which has a query of its own, since only `doctor` needs it.

use std::time::Duration;

use super::Tool;
use super::status::failed;
use crate::inventory::Settings;

const QUERY: [&str; 2] = ["--query-gpu=index,persistence_mode", "--format=csv,noheader"];

/// The persistence mode of each card, by index; or why it is not known.
pub(in crate::inventory) fn persistence(
    settings: &Settings,
    limit: Duration,
) -> Result<Vec<(u32, bool)>, String> {
    let output = Tool::new(settings, limit).and_then(|tool| tool.run(&QUERY));
    let output = output.map_err(|silence| silence.to_string())?;
    if !output.status.success() {
        return Err(format!("nvidia-smi: {}", failed(&output)));
    }
    parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| "nvidia-smi does not report it".to_owned())
}

/// `None` if any line is malformed.
fn parse(text: &str) -> Option<Vec<(u32, bool)>> {
    let mode = |line: &str| -> Option<(u32, bool)> {
        let (index, mode) = line.split_once(", ")?;
        let is_on = match mode.trim_end() {
            "Enabled" => true,
            "Disabled" => false,
            _ => return None,
        };
        Some((index.parse().ok()?, is_on))
    };
    let modes: Vec<(u32, bool)> = text.lines().map(mode).collect::<Option<_>>()?;
    Some(modes).filter(|modes| !modes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn only_whole_answers_count() {
        for (text, modes) in [
            ("0, Enabled\n1, Disabled\n",  Some(vec![(0, true), (1, false)])),
            ("0, Enabled\r\n",             Some(vec![(0, true)])),
            ("0, [N/A]\n",                 None),
            ("0, Enabled\n1, [N/A]\n",     None),
            ("x, Enabled\n",               None),
            ("No devices were found\n",    None),
            ("",                           None),
        ] {
            assert_eq!(parse(text), modes, "{text}");
        }
    }
}
