//! The corpus, and each of its inputs cut short: what was found once stays mended. With stable Rust, and in CI.

use std::fs;
use std::path::Path;

use gpu_coord_fuzz::TARGETS;

#[test]
fn what_is_kept_passes() {
    for (name, property) in TARGETS {
        let inputs = inputs(name);
        assert!(!inputs.is_empty(), "there is no corpus for {name}");
        for (input, bytes) in inputs {
            eprintln!("{name} {input}"); // seen if it fails
            let cuts = (0..8).map(|eighth| bytes.len() * eighth / 8);
            cuts.chain([bytes.len()]).for_each(|len| property(&bytes[..len]));
        }
    }
}

/// The targets of `targets/` and those of the library are the same.
#[test]
fn every_target_is_fuzzed() {
    let file = |name: &str| Path::new("targets").join(name).with_extension("rs");
    for (name, _) in TARGETS {
        let source = fs::read_to_string(file(name)).unwrap();
        assert!(source.contains(&format!("gpu_coord_fuzz::run(\"{name}\", bytes)")), "{name}");
    }
    assert_eq!(fs::read_dir("targets").unwrap().count(), TARGETS.len());
}

fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(Path::new("corpus").join(target)).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    paths.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
}
