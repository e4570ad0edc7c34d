//! YAML: our configuration, and the files that `check` reads.

use std::path::{Path, PathBuf};

use crate::check::{self, HostRules, Rules};
use crate::config::yaml::Problem;
use crate::{assert_shown, cli, lossy};

fn is_placed(problem: &Problem, text: &str) {
    let lines = text.matches(['\n', '\r']).count() + 1;
    let Problem { line, column, .. } = problem;
    // The end of the text lies behind its last line end.
    assert!((1..=lines + 1).contains(line) && *column >= 1, "{problem:?} is not in {text:?}");
}

pub(crate) fn config(bytes: &[u8]) {
    let text = lossy(bytes);
    for key in [None, Some("a")] {
        match crate::config::parse(&text, key) {
            Ok(config) => assert!(config.options.iter().all(|option| option.position.0 >= 1)),
            Err(problem) => is_placed(&problem, &text),
        }
    }
}

pub(crate) fn check(bytes: &[u8]) {
    let text = lossy(bytes);
    let config = crate::config::parse(SHARING, None).unwrap_or_else(|problem| panic!("{problem:?}"));
    let host = HostRules {
        offered: &|asked| Ok(asked.resource.map_or(1, str::len)),
        executable: &|path| {
            if path.starts_with("/") { Ok(PathBuf::from(path)) } else { Err("is no file".to_owned()) }
        },
    };
    let rules = Rules { config: Some(&config), refusal: &cli::refusal, host: Some(host) };
    for file in ["config.yaml", "flink-conf.yaml"].map(Path::new) {
        match check::check(file, &text, &rules) {
            Ok(findings) => check::lines(file, &findings).lines().for_each(assert_shown),
            Err(problem) => is_placed(&problem, &text),
        }
    }
}

const SHARING: &str = "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}";
