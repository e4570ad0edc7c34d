//! Makes a copy of the program's modules in which what is private to a module can be seen by the whole crate.
//!
//! The parsers are private, as they should be, and most have no other way in than a file of the host or the output
//! of a tool. So the fuzz targets see a copy, whose lines have the numbers that they have in `src`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Items that begin a line; rustfmt sees to it that others are indented.
const PRIVATE: [&str; 8] = ["const ", "enum ", "fn ", "mod ", "static ", "struct ", "trait ", "type "];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../src");
    // There is no child to ask NVML: what it prints is fuzzed, and not the child.
    println!("cargo::rustc-env=NVML_CHILD=/dev/null");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let copy = out.join("src");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    copy_tree(Path::new("../src"), &copy)?;
    // The modules of the program, as its main.rs names them.
    let main = fs::read_to_string("../src/main.rs")?;
    let modules = main.lines().filter(|line| line.starts_with("mod "));
    let modules: String = modules.map(|line| format!("pub(crate) {line}\n")).collect();
    fs::write(copy.join("modules.rs"), modules)?;
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let to = to.join(path.file_name().ok_or("a file without a name")?);
        if path.is_dir() {
            copy_tree(&path, &to)?;
        } else {
            fs::write(to, opened(&fs::read_to_string(&path)?))?;
        }
    }
    Ok(())
}

fn opened(source: &str) -> String {
    let open = |line: &str| {
        let is_private = PRIVATE.iter().any(|item| line.starts_with(item));
        let line = if is_private { format!("pub(crate) {line}") } else { line.to_owned() };
        line.replace("pub(super)", "pub(crate)").replace("pub(in crate::inventory)", "pub(crate)") + "\n"
    };
    source.lines().map(open).collect()
}
