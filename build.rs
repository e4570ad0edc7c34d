//! Builds the child that asks NVML, which `src/inventory` embeds.
//!
//! The program is static, and a static program cannot load a library of the host's (dlopen(3) would need the
//! very glibc that it was linked with). So the part that must is a dynamic program of its own: the second
//! binary of this package, built by a second cargo with no more than its own dependencies.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script everything by its environment")]

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

const CHILD: &str = "gpu-coord-nvml";
/// The feature that the child needs, and the profile that it is built with.
const NAME: &str = "nvml-child";

/// Variables by which a person or a machine is told where crates come from. Every other one speaks of the
/// outer build.
const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_REGISTR"];

fn main() -> Result<(), Box<dyn Error>> {
    for path in [NAME, "Cargo.toml", "Cargo.lock", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    // In the second cargo this is the build script of the child, which embeds nothing.
    if env::var_os("CARGO_FEATURE_PROGRAM").is_some() {
        println!("cargo::rustc-env=NVML_CHILD={}", build_child()?.display());
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
