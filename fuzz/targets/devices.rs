#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpu_coord_fuzz::run("devices", bytes));
