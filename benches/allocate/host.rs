//! The files and processes that the benchmark works with.

use std::cell::RefCell;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// How many old files are made at a time.
const STORE: usize = 200;

/// A directory that is removed at the end.
pub(crate) struct Files {
    directory: TempDir,
    old: RefCell<Vec<PathBuf>>,
}

impl Files {
    pub(crate) fn new() -> Files {
        Files { directory: tempfile::tempdir().unwrap(), old: RefCell::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The coordination file.
    pub(crate) fn record(&self) -> PathBuf {
        self.path("record")
    }

    pub(crate) fn write_record(&self, text: &str) {
        fs::write(self.record(), text).unwrap();
    }

    /// One that the script has not just replaced: a young one with lines of the script is waited for. Old files are kept
    /// in store, since a program that is run after a second of rest finds all caches cold.
    #[expect(
        clippy::disallowed_methods,
        reason = "it is the script that replaces the file, and this undoes it"
    )]
    pub(crate) fn write_old_record(&self, text: &str) {
        if !is_old(&self.record()) {
            let mut store = self.old.borrow_mut();
            if store.is_empty() {
                *store = self.old_files();
            }
            fs::rename(store.pop().unwrap(), self.record()).unwrap();
        }
        self.write_record(text);
    }

    fn old_files(&self) -> Vec<PathBuf> {
        fs::create_dir_all(self.path("old")).unwrap();
        let files: Vec<_> = (0..STORE).map(|number| self.path(&format!("old/{number}"))).collect();
        for file in &files {
            fs::write(file, "").unwrap();
        }
        while !files.last().is_some_and(|last| is_old(last)) {
            std::thread::sleep(Duration::from_millis(50));
        }
        files
    }

    pub(crate) fn sink(&self) -> Stdio {
        File::create(self.path("sink")).unwrap().into()
    }

    /// The program of `floor.rs`, static like ours.
    pub(crate) fn floor(&self) -> PathBuf {
        let program = self.path("floor");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/allocate/floor.rs");
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", "-C", "panic=abort"]);
        rustc.args(["-C", "strip=symbols", "-o"]).arg(&program).arg(source);
        assert!(rustc.status().unwrap().success());
        self.installed(&program)
    }

    /// A copy, as an installed program is: what a linker has just written is mapped in smaller pieces, and
    /// starts a tenth of a millisecond later.
    pub(crate) fn installed(&self, program: &Path) -> PathBuf {
        let copy = self.path("installed").join(program.file_name().unwrap());
        fs::create_dir_all(self.path("installed")).unwrap();
        fs::copy(program, &copy).unwrap();
        copy
    }

    /// A directory with an `nvidia-smi` that knows eight cards, and answers both what the script asks and
    /// what gpu-coord asks.
    pub(crate) fn fake_nvidia_smi(&self) -> PathBuf {
        let bin = self.path("bin");
        fs::create_dir_all(&bin).unwrap();
        let rows = |row: &dyn Fn(u32) -> String| (0..8).map(row).collect::<String>();
        let short = rows(&|index| format!("{index}\\n"));
        let long = rows(&|index| {
            format!(
                "{index}, GPU-00000000-0000-4000-8000-00000000000{index}, 00000000:0{index}:00.0, NVIDIA L4, 23034, 1, P8, Default, 0, 550.54.15, [N/A]\\n"
            )
        });
        let text =
            format!("#!/bin/sh\ncase $1 in *index,*) printf '{long}' ;; *) printf '{short}' ;; esac\n");
        let program = bin.join("nvidia-smi");
        fs::write(&program, text).unwrap();
        fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
        bin
    }
}

/// The program as it is shipped. The one that cargo builds beside a benchmark has more of what it depends on turned on, for
/// the tests. So its functions have other names, which `link/order` does not know.
pub(crate) fn shipped() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "--locked", "--bin", "gpu-coord"]);
    assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    PathBuf::from(env!("CARGO_BIN_EXE_gpu-coord"))
}

fn is_old(path: &Path) -> bool {
    let made = fs::metadata(path).and_then(|found| found.created());
    made.is_ok_and(|made| {
        SystemTime::now().duration_since(made).is_ok_and(|age| age > Duration::from_secs(1))
    })
}

/// Living processes that own units.
pub(crate) struct Owners {
    living: Vec<Child>,
}

impl Owners {
    pub(crate) fn start(count: usize) -> Owners {
        let start = |_| Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().unwrap();
        Owners { living: (0..count).map(start).collect() }
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.living.iter().map(Child::id).collect()
    }

    /// Lines as the script writes them: `live` indexes of living owners, and then `dead` ones.
    pub(crate) fn script_lines(&self, live: usize, dead: usize) -> String {
        let gone = || {
            let mut child = Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            child.id()
        };
        let owner = |index: usize| if index < live { self.living[index].id() } else { gone() };
        (0..live + dead).map(|index| format!("{index} {}\n", owner(index))).collect()
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        for child in &mut self.living {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Flink's script in the cache of the tests with a real Flink, if they have run.
#[expect(clippy::disallowed_methods, reason = "a benchmark is told where the cache is as the tests are")]
pub(crate) fn stock_script() -> Option<PathBuf> {
    let cache = std::env::var_os("FLINK_TEST_CACHE").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home)?;
        Some(base.join("gpu-coord-tests"))
    })?;
    find(&cache, "nvidia-gpu-discovery.sh", 8)
}

fn find(directory: &Path, name: &str, depth: u32) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).collect();
    let here = entries.iter().find(|path| path.file_name().is_some_and(|found| found == name)).cloned();
    let mut below = entries.iter().filter(|path| depth > 0 && path.is_dir());
    here.or_else(|| below.find_map(|path| find(path, name, depth - 1)))
}
