//! Whether a vendor's tool exists, found out without starting it: most hosts lack most of the tools, and starting a
//! process only to learn that would cost more than all the rest.

use std::env;

use crate::inventory::Settings;

/// Whether no file of that name exists where the system would look. If one exists but cannot be run, running it says so.
pub(super) fn is_missing(tool: &str, settings: &Settings) -> bool {
    let path = settings.search_path.as_ref().or(settings.inherited_path.as_ref());
    // Without a PATH the C library uses its own.
    path.is_some_and(|path| !env::split_paths(path).any(|directory| directory.join(tool).exists()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::inventory::Source;

    #[test]
    #[rustfmt::skip] // a table
    fn where_a_tool_is_looked_for() {
        let root = tempfile::tempdir().unwrap();
        let (bin, empty) = (root.path().join("bin"), root.path().join("empty"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&empty).unwrap();
        fs::write(bin.join("tool"), "not executable").unwrap();
        let (bin, empty) = (bin.to_str().unwrap(), empty.to_str().unwrap());
        for (case, search_path, inherited_path, is_missing) in [
            ("there",                        None,        Some(format!("{empty}:{bin}")), false),
            ("not there",                    None,        Some(empty.to_owned()),         true),
            ("no such directory",            None,        Some("/nonexistent".to_owned()), true),
            ("where the caller may not say", Some(empty), Some(bin.to_owned()),           true),
            ("where we say",                 Some(bin),   Some(empty.to_owned()),         false),
            ("no path at all",               None,        None,                           false),
        ] {
            let settings = Settings {
                search_path: search_path.map(Into::into),
                inherited_path: inherited_path.map(Into::into),
                ..Settings::of(Source::Auto)
            };
            assert_eq!(super::is_missing("tool", &settings), is_missing, "{case}");
            assert!(!super::is_missing(&format!("{bin}/tool"), &settings), "{case}: its own path");
        }
    }
}
