//! The program as its users run it: the real executable, real files, real processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]
#![expect(clippy::print_stderr, reason = "a test that skips says so")]

mod amd;
mod booted;
mod by_hand;
mod check;
mod command_line;
mod concurrency;
mod coordination;
mod crash;
mod disk;
mod docs;
mod doctor;
mod exec;
mod executable;
mod fake_nvml;
mod faults;
mod files;
mod handover;
mod hanging;
mod history;
mod inventory;
mod isolation;
mod lock;
mod metrics;
mod nvml;
mod opening;
mod owners;
mod packages;
mod place;
mod prose;
mod queue;
mod reclaim;
mod record;
mod replaced;
mod running;
mod sandbox;
mod scene;
mod selection;
mod sharing;
mod strace;
mod table;
mod taken;
mod tree;
mod unusual;
mod watching;
