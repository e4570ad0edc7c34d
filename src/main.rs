//! `gpu-coord` hands the GPUs of a Linux host to processes, so that no GPU is held by two of them.

mod assignment;
mod cli;
mod coordination;
mod device;
mod error;
mod exit;
mod host;
mod inventory;
mod notes;

fn main() {}
