//! The program as its users run it: real files, real processes, real signals.
fn main() {}
