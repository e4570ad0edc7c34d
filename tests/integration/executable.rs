//! One file that runs on any Linux of its architecture.

use std::fs;

use crate::sandbox::PROGRAM;

/// The type of the program header that names a dynamic loader (elf(5), `PT_INTERP`).
const INTERPRETER: u32 = 3;
/// The type of the section of dynamic symbols that a position-independent executable has (`PT_DYNAMIC`).
const DYNAMIC: u32 = 2;

#[test]
fn it_is_static_and_position_independent() {
    let types = program_header_types(&fs::read(PROGRAM).unwrap());
    assert!(!types.contains(&INTERPRETER), "it needs a dynamic loader: was RUSTFLAGS set for the build?");
    assert!(types.contains(&DYNAMIC), "it is not position-independent");
    const { assert!(cfg!(target_feature = "crt-static")) };
}

/// Of a 64-bit little-endian file: the table is at e_phoff, with e_phnum entries of e_phentsize bytes.
fn program_header_types(elf: &[u8]) -> Vec<u32> {
    let number = |at: usize, bytes: usize| -> usize {
        elf[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    assert_eq!(&elf[..6], b"\x7fELF\x02\x01");
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).map(|entry| u32::try_from(number(table + entry * size, 4)).unwrap()).collect()
}
