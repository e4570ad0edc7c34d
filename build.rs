//! Builds the child that asks NVML, which `src/inventory` embeds, and has the linker put the functions in order.
//!
//! The program is static, and a static program cannot load a library of the host's (dlopen(3) would need the
//! very glibc that it was linked with). So the part that must is a dynamic program of its own: the second
//! binary of this package, built by a second cargo with no more than its own dependencies.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script everything by its environment")]

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CHILD: &str = "gpu-coord-nvml";
/// The feature that the child needs, and the profile that it is built with.
const NAME: &str = "nvml-child";

/// The functions that an allocation runs, written by `.ci/order`.
const ORDER: &str = "link/order";

/// Variables by which a person or a machine is told where crates come from. Every other one speaks of the
/// outer build.
const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_REGISTR"];

fn main() -> Result<(), Box<dyn Error>> {
    for path in [NAME, ORDER, "Cargo.toml", "Cargo.lock", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    // In the second cargo this is the build script of the child, which embeds nothing.
    if env::var_os("CARGO_FEATURE_PROGRAM").is_some() {
        println!("cargo::rustc-env=NVML_CHILD={}", build_child()?.display());
        put_in_order()?;
    }
    Ok(())
}

fn build_child() -> Result<PathBuf, Box<dyn Error>> {
    let target = env::var("TARGET")?;
    let directory = Path::new(&env::var("OUT_DIR")?).join(NAME);
    let mut cargo = Command::new(env::var_os("CARGO").ok_or("CARGO is not set")?);
    clear(&mut cargo);
    // Set and empty, it beats the flags of .cargo/config.toml that make the program static.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "");
    cargo.args(["build", "--quiet", "--locked", "--no-default-features", "--features", NAME, "--bin", CHILD]);
    cargo.args(["--profile", NAME, "--target", &target, "--target-dir"]).arg(&directory);
    if cargo.status()?.success() {
        Ok(directory.join(target).join(NAME).join(CHILD))
    } else {
        Err("the child that asks NVML could not be built; its errors are above".into())
    }
}

/// Takes away what the outer cargo tells of its own build: it would build the child static, for another
/// profile, or by clippy.
fn clear(cargo: &mut Command) {
    let is_kept = |name: &str| {
        let of_target =
            name.starts_with("CARGO_TARGET_") && !name.ends_with("FLAGS") && name != "CARGO_TARGET_DIR";
        of_target || KEPT.iter().any(|kept| name.starts_with(kept))
    };
    let ours = ["RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS"];
    let of_cargo = env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        let is_ours = name.starts_with("CARGO") && !is_kept(&name);
        is_ours || ours.contains(&name.as_ref())
    });
    of_cargo.for_each(|name| {
        cargo.env_remove(name);
    });
    for name in ["OUT_DIR", "TARGET", "HOST", "PROFILE", "OPT_LEVEL", "DEBUG", "NUM_JOBS"] {
        cargo.env_remove(name);
    }
}

/// Side by side, what an allocation runs lies on fewer pages, and these are what a short run takes its time for. It is
/// LLD, Rust's own linker here, that can do it; without it the program is the same, and a little slower.
fn put_in_order() -> Result<(), Box<dyn Error>> {
    let order = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join(ORDER);
    // A name that is not found is no mistake: names change with the compiler.
    let words =
        [format!("--symbol-ordering-file={}", order.display()), "--no-warn-symbol-ordering".to_owned()];
    if env::var("PROFILE")? != "release" || !links_with(&words)? {
        return Ok(());
    }
    for word in linker_words(&words) {
        println!("cargo::rustc-link-arg-bin=gpu-coord={word}");
    }
    Ok(())
}

/// Whether the linker that the program is linked with knows these words, by linking a program of one line.
fn links_with(words: &[String]) -> Result<bool, Box<dyn Error>> {
    let probe = Path::new(&env::var("OUT_DIR")?).join("probe");
    let source = probe.with_extension("rs");
    fs::write(&source, "fn main() {}\n")?;
    let mut rustc = Command::new(env::var_os("RUSTC").ok_or("RUSTC is not set")?);
    rustc.args(["--target", &env::var("TARGET")?, "-o"]).arg(probe).arg(source);
    rustc.args(env::var("CARGO_ENCODED_RUSTFLAGS")?.split('\x1f').filter(|flag| !flag.is_empty()));
    rustc.args(env::var("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}")).iter());
    rustc.args(linker_words(words).map(|word| format!("-Clink-arg={word}")));
    Ok(rustc.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success())
}

/// As the compiler driver, which calls the linker, passes them on.
fn linker_words(words: &[String]) -> impl Iterator<Item = &str> {
    words.iter().flat_map(|word| ["-Xlinker", word])
}
