//! The least that any program could do which records something under a lock: start, open, lock, write.
//! Built static by the benchmark, to be set against `gpu-coord`.

use std::fs::OpenOptions;
use std::io::Write;

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_default();
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    file.lock()?;
    file.write_all(b"0 4711\n")
}
