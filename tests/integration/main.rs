//! The program as its users run it: the real executable, real files, real processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]
#![expect(clippy::print_stderr, reason = "a test that skips says so")]

mod command_line;
mod coordination;
mod crash;
mod docs;
mod executable;
mod files;
mod hanging;
mod inventory;
mod lock;
mod record;
mod running;
mod sandbox;
mod strace;
