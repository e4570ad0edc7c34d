//! How long each target computes on 10 MB of input, and which input is the slowest: what grows faster than its input is
//! seen at once. `cargo run --profile size --bin size [MB [TARGET...]]`

use std::fs;
use std::path::Path;
use std::time::Duration;

use gpu_coord_fuzz::TARGETS;

/// The inputs of the corpus over and over, and what parsers stumble over: one byte, and one word.
const WORDS: [&str; 16] =
    ["x", "0", " ", "\n", "[", "{", "\"", "<a>", "&", "%", ",", "1,", "- ", "a: ", "0 1\n", "# grant=1\n"];

fn main() {
    let mut words = std::env::args().skip(1);
    let megabytes = words.next().map_or(10, |word| word.parse().expect("a number of MB"));
    let named: Vec<String> = words.collect();
    let is_wanted = |name: &str| named.is_empty() || named.iter().any(|other| other == name);
    let bytes = megabytes * 1_000_000;
    println!("{:<12} {:>7}  input", "target", "seconds");
    for (name, property) in TARGETS.into_iter().filter(|(name, _)| is_wanted(name)) {
        let measured =
            inputs(name).into_iter().map(|(what, unit)| (time(property, &fill(&unit, bytes)), what));
        let (slowest, what) = measured.max().expect("words");
        println!("{name:<12} {:>7.3}  {what}", slowest.as_secs_f64());
    }
}

fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let words = WORDS.iter().map(|word| (format!("{word:?}"), word.as_bytes().to_vec()));
    let files = fs::read_dir(Path::new("corpus").join(target)).expect("run it in fuzz/");
    let paths = files.map(|file| file.expect("a file").path());
    let kept = paths.map(|path| (path.display().to_string(), fs::read(&path).expect("readable")));
    kept.chain(words).filter(|(_, unit)| !unit.is_empty()).collect()
}

fn fill(unit: &[u8], bytes: usize) -> Vec<u8> {
    unit.iter().copied().cycle().take(bytes).collect()
}

fn time(property: fn(&[u8]), bytes: &[u8]) -> Duration {
    let begun = computed();
    property(bytes);
    computed() - begun
}

/// What this thread has spent on a processor, so that it does not matter who else computes.
fn computed() -> Duration {
    let text = fs::read_to_string("/proc/self/schedstat").expect("/proc/self/schedstat");
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("nanoseconds"))
}
