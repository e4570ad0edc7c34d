//! Attacks by another user in a world-writable directory: the program refuses or reports what it finds there, and
//! does nothing else with it.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::running::{End, Running, wait_until};
use crate::sandbox::{PROGRAM, Process, Sandbox, install, is_root};

/// Not the user of these tests, nor the owner of any unit.
const OTHER: u32 = 4711;

fn as_other(program: &str) -> Command {
    let mut command = Command::new(program);
    command.uid(OTHER).gid(OTHER).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// A host whose directory everybody may write to.
fn open_to_all(gpus: u32, mode: u32) -> Sandbox {
    let host = Sandbox::with_gpus(gpus);
    fs::set_permissions(host.path(), Permissions::from_mode(mode)).unwrap();
    host
}

/// Puts something else in the place of the file, a thousand times a second, and never the same twice.
const SWAPPER: &str = r#"
import os, socket, sys
victim, name = sys.argv[1], 'coordination'
def of_its_own(path): open(path, 'w').close()
def link(path): os.symlink(victim, path)
def fifo(path): os.mkfifo(path)
def directory(path): os.mkdir(path)
def unix(path): socket.socket(socket.AF_UNIX).bind(path)
def linked_twice(path):
    open(path, 'w').close()
    os.link(path, path + '.other')
def aside():
    try: os.rename(name, 'aside')
    except OSError: pass
def back():
    try: os.rename('aside', name)
    except OSError: pass
print('begun', flush=True)
count = 0
while True:
    for make in link, of_its_own, link, fifo, link, directory, link, unix, link, linked_twice:
        count += 1
        new = 'new%d' % count
        make(new)
        aside()
        try: os.rename(new, name)
        except OSError: pass
        try: os.rename(name, new)
        except OSError: pass
        back()
        for path in new, new + '.other':
            try: os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
            except OSError: pass
"#;

/// Whoever may write to the directory can remove the file, so that nothing is shared. That must not lead root to
/// another file, nor block it for ever.
#[test]
fn a_name_that_is_swapped_all_the_time_leads_nowhere_else() {
    if !is_root("a_name_that_is_swapped_all_the_time_leads_nowhere_else") {
        return;
    }
    // The kernel's own guard is for sticky directories.
    let (host, owner) = (open_to_all(2, 0o777), Process::start());
    let elsewhere = TempDir::new().unwrap();
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "").unwrap();
    let before = fs::metadata(&victim).unwrap();
    let mut swapper = as_other("python3");
    swapper.args(["-c", SWAPPER]).arg(&victim).current_dir(host.path()).stdin(Stdio::null());
    let mut swapper = Running::with_stdout(&mut swapper, Stdio::piped());
    assert_eq!(swapper.line(), "begun");
    let (mut answered, mut refused) = (0, 0);
    let since = Instant::now();
    // On a busy machine the swapper runs less often.
    while answered + refused < 450 || (refused <= 20 && since.elapsed() < Duration::from_secs(60)) {
        for line in ["allocate 1", "1 --enable-coordination-mode", "deallocateAll"] {
            let line = format!("{line} --deadline 5 --log none --owner {}", owner.pid());
            let (end, stdout, stderr) = Running::start(host.program(&line)).end();
            let is_one_line = stderr.starts_with("gpu-coord: ") && stderr.matches('\n').count() == 1;
            match end {
                End::Exit(0) => answered += 1,
                End::Exit(1 | 3 | 4) if stdout.is_empty() && is_one_line => refused += 1,
                end => panic!("{line}: {end:?} {stdout:?} {stderr:?}"),
            }
        }
    }
    drop(swapper);
    let after = fs::metadata(&victim).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "", "what a link leads to was written to");
    assert_eq!((after.mtime_nsec(), after.mode()), (before.mtime_nsec(), before.mode()));
    assert!(refused > 20, "answered {answered} times, refused {refused} times");
}

/// Whoever may read the file can lock it. The message names the process, and nothing is granted or released meanwhile.
#[test]
fn a_lock_that_another_user_keeps_for_ever_is_waited_for_until_the_deadline() {
    if !is_root("a_lock_that_another_user_keeps_for_ever_is_waited_for_until_the_deadline") {
        return;
    }
    let (host, owner) = (open_to_all(2, 0o1777), Process::start());
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let before = host.text();
    let mut flock = as_other("flock");
    flock.args(["-o", "coordination", "sh", "-c", "echo; read x"]).current_dir(host.path());
    let mut flock = Running::with_stdout(flock.stdin(Stdio::piped()), Stdio::piped());
    flock.line();
    flock.signal(Signal::SIGSTOP);
    let holder = format!(
        "the deadline of 0.1 s passed while waiting for the lock on coordination, which is held by pid {} (flock -o coordination sh -c echo; read x)",
        flock.pid()
    );
    let unseen = "the deadline of 0.1 s passed while waiting for the lock on coordination, which is held by a process that cannot be seen from here";
    for line in ["allocate 1", "1 --enable-coordination-mode", "deallocateAll"] {
        let line = format!("{line} --deadline 0.1 --owner {}", owner.pid());
        // On a busy machine the look through all processes may be given up: asked again.
        wait_until("the holder is named", || {
            let run = host.command(&line).assert().code(3).stdout("").get_output().clone();
            let stderr = String::from_utf8(run.stderr).unwrap();
            let said = stderr.strip_prefix("gpu-coord: ").unwrap().trim_end();
            assert!([holder.as_str(), unseen].contains(&said), "{said}");
            said == holder
        });
    }
    assert_eq!(host.text(), before);
    flock.kill();
    host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
}

/// `ESC [ 2 J` clears a terminal, and so does the one byte `CSI` of ISO 6429, which UTF-8 writes in two.
const CLEARS: &str = "\u{1b}[2J\u{9b}2J\u{7}\u{7f}";

#[track_caller]
fn assert_harmless(case: &str, bytes: &[u8]) {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let harmful = text.chars().find(|character| character.is_control() && *character != '\n');
    assert_eq!(harmful, None, "{case}: {text:?}");
}

/// What others have written: lines of the record, the name of a process and its words, a path.
#[test]
fn no_text_of_others_steers_a_terminal() {
    let mut owner = Command::new("bash");
    owner.arg("-c").arg(format!("exec -a 'evil{CLEARS}' sleep 1000"));
    let owner = Running::start(owner);
    wait_until("the process has its name", || {
        fs::read(format!("/proc/{}/cmdline", owner.pid())).unwrap().starts_with(b"evil")
    });
    let host = Sandbox::with_gpus(4);
    host.command("allocate 1")
        .args(["--owner", &owner.pid().to_string(), "--namespace", "team"])
        .assert()
        .code(0);
    let escaped: String = CLEARS.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let text =
        host.text().replace("ns=team", &format!("ns=team{escaped};inv={escaped};cgroup=v2:/{escaped}"));
    assert!(text.contains(&escaped), "{text}");
    let drained = format!("! 1\tuuid=GPU-1{escaped};reason={escaped}\n");
    let odd = format!("2 {}\tuuid={CLEARS}\n3 {CLEARS}\n", owner.pid());
    let mut answered = 0;
    for (case, record) in [
        ("keys", text.clone() + &drained),
        ("lines that withhold", text.clone() + &odd),
        ("a line that is refused", text.clone() + &format!("{CLEARS}\n")),
        ("a waiter", text + &format!("? {}\tstart=1;amount=1;ticket=1;boot={escaped}\n", owner.pid())),
    ] {
        let path = host.path().join(format!("a{CLEARS}b"));
        fs::write(&path, record).unwrap();
        for line in [
            "status",
            "status --json",
            "reclaim --dry-run",
            "allocate 4",
            "4 --enable-coordination-mode",
            "deallocateAll",
            "doctor",
        ] {
            let mut command = Command::new(PROGRAM);
            command.env_clear().current_dir(host.path()).args(line.split(' '));
            command.arg("--coordination-file").arg(&path);
            if !line.starts_with("deallocate") {
                command.args(["--source", "simulated:4"]);
            }
            if line.contains("llocate") || line.starts_with('4') {
                command.args(["--owner", &owner.pid().to_string()]);
            }
            let output = command.output().unwrap();
            assert_harmless(&format!("{case}, {line}, stdout"), &output.stdout);
            assert_harmless(&format!("{case}, {line}, stderr"), &output.stderr);
            let text = [output.stdout, output.stderr].concat();
            answered += usize::from(text.windows(3).any(|bytes| bytes == b"[2J"));
        }
    }
    assert!(answered > 8, "shown {answered} times, without what steers");
}

/// A library that creates a file with whatever privileges it has.
const LIBRARY: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void mark(void) {
    FILE *mark = fopen("MARK", "a");
    if (mark) { fprintf(mark, "%d\n", geteuid()); fclose(mark); }
}
"#;

/// The program is not meant to be installed so; if it is, nothing that its caller sets reaches a tool that runs with
/// its rights: a loader's variables, a language's, a path.
#[test]
fn with_raised_privilege_a_callers_library_is_in_no_tool() {
    const TEST: &str = "with_raised_privilege_a_callers_library_is_in_no_tool";
    if !is_root(TEST) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let here = directory.path();
    fs::set_permissions(here, Permissions::from_mode(0o777)).unwrap();
    let (mark, library) = (here.join("mark"), here.join("library.so"));
    fs::write(here.join("library.c"), LIBRARY.replace("MARK", mark.to_str().unwrap())).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(here.join("library.c"))
        .status();
    assert!(compiled.unwrap().success());
    let site = format!("import os\nopen({mark:?}, 'a').write('%d\\n' % os.geteuid())\n");
    fs::write(here.join("sitecustomize.py"), site).unwrap();
    let program = here.join("gpu-coord");
    install(&program);
    for (mode, is_raised) in [(0o755, false), (0o4755, true)] {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        // A Python program: it heeds both variables, where it is told them.
        let mut command = as_other(program.to_str().unwrap());
        command
            .args(["1", "--source", "rocm-smi"])
            .env("LD_PRELOAD", &library)
            .env("PYTHONPATH", here)
            .current_dir(here);
        let (end, stdout, stderr) = Running::start(command).end();
        assert_eq!((end, stdout.as_str()), (End::Exit(4), ""), "{stderr}");
        assert!(stderr.contains("rocm-smi: "), "the tool was run: {stderr}");
        let marks = fs::read_to_string(&mark).unwrap_or_default();
        if is_raised {
            assert_eq!(marks, "", "the caller's library ran in a tool");
        } else {
            assert!(!marks.is_empty() && marks.lines().all(|uid| uid == OTHER.to_string()), "{marks:?}");
            fs::remove_file(&mark).unwrap();
        }
    }
}

/// What one user records about another's process is believed, as SECURITY.md says. The harm is limited to a
/// withheld unit, and the other user can end it.
#[test]
fn a_line_in_anothers_name_withholds_and_is_given_back_by_that_one() {
    let (host, owner, next) = (Sandbox::with_gpus(3), Process::start(), Process::start());
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    // As an owner would be recorded for a second grant.
    let grant = host.text();
    let (before, after) = grant.split_once("grant=").unwrap();
    let forged = format!("{before}grant=0123456789abcdef{}", &after[16..])
        .replacen('0', "1", 1)
        .replace("-000000000000;", "-000000000001;")
        .replace(":00.0;", ":00.1;");
    File::options().append(true).open(host.file()).unwrap().write_all(forged.as_bytes()).unwrap();
    assert_eq!(host.holders(), [(0, owner.pid()), (1, owner.pid())]);
    let line = format!("2 --enable-coordination-mode --owner {}", next.pid());
    let problem =
        "2 units asked for, 1 of 3 can be given: 2 held by living owners (`gpu-coord status` names them)";
    host.refuses(&line, 1, problem);
    host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    host.answers(&line, "0,1\n");
}

/// Files that are too large are not read, and sparse files are not filled.
#[test]
fn a_huge_file_costs_neither_memory_nor_disk() {
    let (host, owner) = (Sandbox::with_gpus(1).recorded(""), Process::start());
    File::options().write(true).open(host.file()).unwrap().set_len(1 << 42).unwrap();
    let blocks = fs::metadata(host.file()).unwrap().blocks();
    for line in [
        "allocate 1 --owner OWNER",
        "1 --enable-coordination-mode --owner OWNER",
        "deallocateAll --owner OWNER",
        "status",
        "reclaim",
    ] {
        let program = host.program(&line.replace("OWNER", &owner.pid().to_string()));
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--as={}", 64 << 20)).arg(program.get_program()).args(program.get_args());
        let (end, stdout, stderr) = Running::start({
            limited.current_dir(host.path());
            limited
        })
        .end();
        let problem = "gpu-coord: coordination: has 4398046511104 bytes, and a coordination file has at most 67108864\n";
        assert_eq!((end, stdout.as_str(), stderr.as_str()), (End::Exit(4), "", problem), "{line}");
    }
    assert_eq!(fs::metadata(host.file()).unwrap().blocks(), blocks);
}
