//! Paths, sizes, limits and lines that are used only by mistake.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::record::{held_in, units_of};
use crate::running::{End, Running};
use crate::sandbox::{PROGRAM, Process, Sandbox};

fn ended(code: i32, stdout: &str, stderr: &str) -> (End, String, String) {
    (End::Exit(code), stdout.to_owned(), stderr.to_owned())
}

/// `allocate 1` for an owner, from a file at any path.
fn allocate(directory: &Path, file: &OsStr, owner: &Process) -> (End, String, String) {
    let mut command = Command::new(PROGRAM);
    command.env_clear().current_dir(directory).args(["allocate", "1", "--source", "simulated:4"]);
    command.args(["--owner", &owner.pid().to_string(), "--coordination-file"]).arg(file);
    Running::start(command).end()
}

#[test]
fn a_path_of_any_bytes_is_a_path() {
    let host = Sandbox::with_gpus(4);
    fs::create_dir(host.path().join("sub")).unwrap();
    let long = "x".repeat(255);
    let names: [&[u8]; 8] =
        [b"./a", b"sub/../b", b" a b ", b"-", b"new\nline", b"\xff\xfe", long.as_bytes(), b"sub/c"];
    for name in names.map(|name| OsString::from_vec(name.to_vec())) {
        let owner = Process::start();
        assert_eq!(allocate(host.path(), &name, &owner), ended(0, "0\n", ""), "{name:?}");
        assert_eq!(allocate(host.path(), &name, &owner), ended(0, "1\n", ""), "{name:?}");
        assert_eq!(units_of(&held_in(&host.path().join(&name)), owner.pid()).len(), 2, "{name:?}");
    }
}

#[test]
#[rustfmt::skip] // a table
fn a_path_that_is_none_is_refused() {
    let host = Sandbox::with_gpus(4).recorded("");
    let owner = Process::start();
    let long = "x".repeat(256);
    for (path, problem) in [
        ("new/",             "cannot make new/: Is a directory (os error 21)".to_owned()),
        ("coordination/",    "cannot look at coordination/: Not a directory (os error 20)".to_owned()),
        (".",                ".: is a directory; name a file in it".to_owned()),
        ("/",                "/: is a directory; name a file in it".to_owned()),
        ("/proc/self/fd/0",  "/proc/self/fd/0: is a symbolic link; name the file that it leads to".to_owned()),
        (&long,              format!("cannot look at {long}: File name too long (os error 36)")),
        ("new\nline/x",      "new\\nline/x: there is no directory new\\nline; make it, or name another file".to_owned()),
    ] {
        let refused = ended(4, "", &format!("gpu-coord: {problem}\n"));
        assert_eq!(allocate(host.path(), OsStr::new(path), &owner), refused, "{path:?}");
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 1, "{path:?}");
    }
}

/// A wrong path given by root, say. What is older than the boot is cleared only where it looks like a record.
#[test]
fn a_file_of_another_kind_is_left_alone_however_old() {
    let owner = Process::start();
    let text = format!("# {}\nssh 22/tcp\n", "x".repeat(300));
    let host = Sandbox::with_gpus(1).recorded(&text);
    let old = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
    File::options().write(true).open(host.file()).unwrap().set_times(old).unwrap();
    let problem = "coordination:2: `ssh 22/tcp` does not begin with an index and a blank; correct the line, or delete it if no process holds its unit";
    host.refuses(&format!("1 --enable-coordination-mode --owner {}", owner.pid()), 4, problem);
    host.refuses("status", 4, problem);
    assert_eq!(host.text(), text);
}

/// A record that cannot be read back would withhold every unit for ever.
#[test]
fn the_file_does_not_grow_past_what_is_read() {
    const LARGEST: u64 = 64 << 20;
    let (host, owner) = (Sandbox::with_gpus(2), Process::start());
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let file = File::options().write(true).open(host.file()).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(LARGEST).unwrap(); // sparse
    file.write_all_at(b"#", len).unwrap();
    file.write_all_at(b"\n", LARGEST - 1).unwrap();
    let grown = LARGEST + len;
    let problem =
        format!("coordination: would have {grown} bytes, and has at most {LARGEST}; ask for fewer units");
    // On a busy machine such a file takes long.
    host.refuses(&format!("allocate 1 --deadline 60 --owner {}", owner.pid()), 4, &problem);
    assert_eq!(file.metadata().unwrap().len(), LARGEST);
    host.answers(&format!("deallocateAll --deadline 60 --owner {}", owner.pid()), "");
}

#[test]
fn a_date_past_every_calendar_is_no_date() {
    let owner = Process::start();
    let now = Sandbox::with_gpus(1);
    now.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let text = now.text();
    let (text, _) = text.split_once(";time=").unwrap();
    for (time, date) in
        [("253402300799", "9999-12-31T23:59:59Z"), ("253402300800", "-"), ("18446744073709551615", "-")]
    {
        let host = Sandbox::with_gpus(1).recorded(format!("{text};time={time}\n"));
        let output = host.command("status").assert().code(0).stderr("").get_output().stdout.clone();
        let table = String::from_utf8(output).unwrap();
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_ascii_whitespace().collect();
        assert_eq!(row[row.len() - 3..], [date, "sleep", "1000"], "{time}: {table}");
        host.command("status --json").assert().code(0).stderr("");
    }
}

/// One of 4096 bytes is written over and padded, a longer one is left, since padding it costs too much.
#[test]
fn a_long_line_that_is_free_is_used_again_or_left() {
    for (len, is_used) in [(4096, true), (4097, false), (100_000, false)] {
        let (host, owner) = (Sandbox::with_gpus(1), Process::start());
        let release = format!("deallocateAll --owner {}", owner.pid());
        let line = format!("allocate 1 --owner {}", owner.pid());
        host.answers(&line, "0\n");
        let text = host.text().trim_end().to_owned() + ";later=";
        let host = host.recorded(format!("{text}{}\n", "y".repeat(len - text.len())));
        host.answers(&release, "");
        for _ in 0..2 {
            host.answers(&line, "0\n");
            assert_eq!(host.holders(), [(0, owner.pid())], "{len}");
            assert_eq!(host.text().len() == len + 1, is_used, "{len}");
            host.answers(&release, "");
        }
    }
}

#[test]
fn lines_of_ours_that_an_editor_changed_still_hold() {
    let (one, other) = (Process::start(), Process::start());
    let host = Sandbox::with_gpus(3);
    host.answers(&format!("allocate 2 --owner {}", one.pid()), "0,1\n");
    let text = host.text().replace('\n', "\r\n");
    let host = host.recorded(format!("\r\n{text}\r\n\r\n"));
    host.answers(&format!("1 --enable-coordination-mode --owner {}", other.pid()), "2\n");
    assert_eq!(host.holders(), [(0, one.pid()), (1, one.pid()), (2, other.pid())]);
    host.answers(&format!("deallocateAll --owner {}", one.pid()), "");
    host.answers(&format!("allocate 2 --owner {}", other.pid()), "0,1\n");
}

#[test]
fn a_last_line_that_is_free_and_has_no_end_is_ended() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(1).recorded("# abc");
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    assert!(host.text().starts_with("# abc\tcut-short\n0 "), "{}", host.text());
    assert_eq!(host.holders(), [(0, owner.pid())]);
}

/// `of` tells a reader how many there should be; that there are fewer does not give a unit away.
#[test]
fn a_grant_that_counts_wrong_is_held() {
    for of in ["3", "0", "1"] {
        let (one, other) = (Process::start(), Process::start());
        let host = Sandbox::with_gpus(3);
        host.answers(&format!("allocate 2 --owner {}", one.pid()), "0,1\n");
        let text = host.text().replace(";of=2;", &format!(";of={of};"));
        let host = host.recorded(text);
        host.answers(&format!("1 --enable-coordination-mode --owner {}", other.pid()), "2\n");
        host.answers(&format!("deallocateAll --owner {}", one.pid()), "");
        assert_eq!(host.holders(), [(2, other.pid())], "{of}");
    }
}

/// A name decides, and an index does not: here the lines of one device stand at two indexes.
#[test]
fn a_device_that_is_recorded_twice_is_held_while_any_owner_lives() {
    let (one, other, next) = (Process::start(), Process::start(), Process::start());
    let (host, elsewhere) = (Sandbox::with_gpus(3), Sandbox::with_gpus(3));
    host.answers(&format!("allocate 1 --owner {}", one.pid()), "0\n");
    elsewhere.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
    let text = host.text() + &elsewhere.text().replacen('0', "2", 1);
    let host = host.recorded(text);
    let call = format!("2 --enable-coordination-mode --owner {}", next.pid());
    let release = format!("deallocateAll --owner {}", next.pid());
    host.answers(&call, "1,2\n");
    host.answers(&release, "");
    one.kill();
    host.answers(&call, "1,2\n");
    host.answers(&release, "");
    other.kill();
    host.answers(&format!("3 --enable-coordination-mode --owner {}", next.pid()), "1,2,0\n");
}

/// Units are recorded and answered, or neither, wherever a limit is reached.
#[test]
fn limits_part_neither_from_the_other() {
    let (host, owner) = (Sandbox::with_gpus(2), Process::start());
    let files = (0..9).map(|count| format!("--nofile={count}"));
    let memory = (1..24).map(|step| format!("--as={}", step * 512 * 1024));
    let mut answered = 0;
    for limit in files.chain(memory) {
        let program = host.program(&format!("allocate 2 --owner {}", owner.pid()));
        let mut command = Command::new("prlimit");
        command.arg(&limit).arg(program.get_program()).args(program.get_args()).current_dir(host.path());
        let (end, stdout, stderr) = Running::start(command).end();
        let held = units_of(&held_in(&host.file()), owner.pid());
        assert_eq!(stdout.is_empty(), held.is_empty(), "{limit}: {end:?} {stdout:?} {stderr:?} {held:?}");
        assert_eq!(end == End::Exit(0), held.len() == 2, "{limit}: {end:?} {stderr:?}");
        answered += usize::from(end == End::Exit(0));
        host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    }
    assert!((4..32).contains(&answered), "{answered} of 32");
}

#[test]
fn a_blank_among_the_keys_withholds_and_is_not_written_again() {
    let (scripts, owner) = (Process::start(), Process::start());
    let line = format!("1 {}\ta b=c", scripts.pid());
    let host = Sandbox::with_gpus(3).recorded(format!("{line}\n"));
    let warning = format!(
        "gpu-coord: warning: coordination:1: `{}` has a blank among its keys, so that index 1 is withheld; correct the line, or delete it if no process holds the unit\n",
        line.escape_default()
    );
    let command = format!("2 --enable-coordination-mode --owner {}", owner.pid());
    host.command(&command).assert().code(0).stdout("0,2\n").stderr(warning);
    assert_eq!(host.text().matches("a b=c").count(), 1);
    assert_eq!(host.text().lines().next(), Some(line.as_str()));
}
