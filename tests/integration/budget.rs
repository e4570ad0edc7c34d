//! How many system calls an allocation makes. They are counted because a limit on time would not be reliable.

use crate::sandbox::Sandbox;
use crate::strace;

/// Of these, 14 are the C library's. Another one is a decision: see docs/performance.md.
const MOST_CALLS: usize = 60;

#[test]
fn an_allocation_makes_few_system_calls() {
    if !strace::is_there("an_allocation_makes_few_system_calls") {
        return;
    }
    let host = Sandbox::with_gpus(8).recorded("");
    let calls = strace::calls(&host.program("allocate 1"));
    // The standard library's own, before each close, where assertions are on.
    let texts = calls.iter().map(|call| call.text.as_str()).filter(|text| !text.contains("F_GETFD"));
    let texts: Vec<&str> = texts.collect();
    assert!(texts.len() <= MOST_CALLS, "{} calls:\n{}", texts.len(), texts.join("\n"));
}
