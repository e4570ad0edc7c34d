//! Which units are granted, and what the file contains afterwards.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use crate::sandbox::{Process, Sandbox, dead_pid};

/// Older than this boot, and so than every process. An hour would not be enough: a machine restored from
/// a snapshot has booted long before the time that it is up for.
fn make_old(host: &Sandbox) {
    File::open(host.file()).unwrap().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
}

#[test]
fn two_owners_get_different_units() {
    let (host, one, other) = (Sandbox::with_gpus(4), Process::start(), Process::start());
    host.answers(&format!("allocate 2 --owner {}", one.pid()), "0,1\n");
    host.answers(&format!("2 --enable-coordination-mode --owner {}", other.pid()), "2,3\n");
    assert_eq!(host.holders(), [(0, one.pid()), (1, one.pid()), (2, other.pid()), (3, other.pid())]);
}

#[test]
fn an_owner_can_ask_again() {
    let (host, owner) = (Sandbox::with_gpus(4), Process::start());
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    host.answers(&format!("allocate 2 --owner {}", owner.pid()), "1,2\n");
}

#[test]
fn too_few_free_units_give_none() {
    let (host, one, other) = (Sandbox::with_gpus(3), Process::start(), Process::start());
    host.answers(&format!("allocate 2 --owner {}", one.pid()), "0,1\n");
    let before = host.text();
    host.refuses(
        &format!("allocate 2 --owner {}", other.pid()),
        1,
        "2 units asked for, 1 of 3 can be given: 2 held by living owners (`gpu-coord status` names them)",
    );
    assert_eq!(host.text(), before);
}

#[test]
fn more_than_the_host_has_is_told_apart_and_makes_no_file() {
    let (host, owner) = (Sandbox::with_gpus(3), Process::start());
    for amount in ["4", "99999999999999999999"] {
        host.refuses(
            &format!("allocate {amount} --owner {}", owner.pid()),
            1,
            &format!("{amount} units asked for, and there are 3: waiting cannot help; ask for fewer"),
        );
    }
    assert!(!host.file().exists());
}

#[test]
fn the_bare_form_takes_over_what_the_dead_left_and_allocate_only_if_told() {
    let (host, dead, owner) = (Sandbox::with_gpus(1), Process::start(), Process::start());
    host.answers(&format!("allocate 1 --owner {}", dead.pid()), "0\n");
    dead.kill();
    host.refuses(
        &format!("allocate 1 --owner {}", owner.pid()),
        1,
        "1 unit asked for, 0 of 1 can be given: 1 held by dead owners (--check-dead takes them over)",
    );
    host.answers(&format!("allocate 1 --check-dead --owner {}", owner.pid()), "0\n");
    assert_eq!(host.holders(), [(0, owner.pid())]);
    owner.kill();
    let next = Process::start();
    host.answers(&format!("1 --enable-coordination --owner {}", next.pid()), "0\n");
}

#[test]
fn a_free_unit_goes_before_one_of_the_dead() {
    let (host, dead, owner) = (Sandbox::with_gpus(2), Process::start(), Process::start());
    host.answers(&format!("allocate 1 --owner {}", dead.pid()), "0\n");
    dead.kill();
    host.answers(&format!("1 --enable-coordination --owner {}", owner.pid()), "1\n");
    assert_eq!(host.holders(), [(1, owner.pid())], "a call that may take over clears what is stale");
}

#[test]
fn what_is_given_back_is_free_and_its_space_is_used_again() {
    let (host, owner) = (Sandbox::with_gpus(2), Process::start());
    host.answers(&format!("allocate 2 --owner {}", owner.pid()), "0,1\n");
    let (size, inode) = (host.text().len(), fs::metadata(host.file()).unwrap().ino());
    for _ in 0..3 {
        host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
        assert_eq!(host.holders(), []);
        host.answers(&format!("allocate 2 --owner {}", owner.pid()), "0,1\n");
    }
    assert_eq!((host.text().len(), fs::metadata(host.file()).unwrap().ino()), (size, inode));
}

#[test]
fn to_give_back_what_one_does_not_hold_is_no_error_and_writes_nothing() {
    let (host, owner, other) = (Sandbox::with_gpus(2), Process::start(), Process::start());
    host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    assert!(!host.file().exists(), "and makes no file");
    host.answers(&format!("allocate 2 --owner {}", owner.pid()), "0,1\n");
    let before = host.text();
    host.answers(&format!("deallocateAll --owner {}", other.pid()), "");
    assert_eq!(host.text(), before);
}

#[test]
fn what_a_process_left_that_has_ended_can_be_given_back_by_its_pid() {
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let pid = owner.kill();
    host.answers(&format!("deallocate-all --owner {pid}"), "");
    assert_eq!(host.holders(), []);
}

#[test]
fn without_coordination_no_file_is_touched() {
    let host = Sandbox::with_gpus(4);
    host.answers("2", "0,1\n");
    host.answers("allocate 2 --no-coordination", "0,1\n");
    host.answers("0 --enable-coordination", "");
    assert!(!host.file().exists());
}

#[test]
fn a_line_of_the_script_with_a_living_owner_holds_and_is_written_anew() {
    let (scripts, owner) = (Process::start(), Process::start());
    let host = Sandbox::with_gpus(3).recorded(format!("1 {}\n", scripts.pid()));
    host.answers(&format!("2 --enable-coordination --owner {}", owner.pid()), "0,2\n");
    assert_eq!(host.holders(), [(0, owner.pid()), (1, scripts.pid()), (2, owner.pid())]);
    let anew =
        host.text().lines().filter(|line| line.starts_with("1 ")).map(str::to_owned).collect::<Vec<_>>();
    assert!(anew.len() == 1 && anew[0].contains(";start="), "{anew:?}");
}

#[test]
fn a_line_of_the_script_is_stale_if_its_owner_is_dead_or_younger_than_the_file() {
    for pid in [dead_pid(), std::process::id()] {
        for line in ["1 --enable-coordination", "allocate 1"] {
            let owner = Process::start();
            let host = Sandbox::with_gpus(1).recorded(format!("0 {pid}\n"));
            make_old(&host);
            host.answers(&format!("{line} --owner {}", owner.pid()), "0\n");
            assert_eq!(host.holders(), [(0, owner.pid())], "{line}");
        }
    }
}

#[test]
fn a_grant_that_was_not_finished_is_not_held() {
    let (dead, owner) = (std::process::id(), Process::start());
    let grant = "v=1;grant=00000000000000aa;of=2";
    let host = Sandbox::with_gpus(2).recorded(format!("0 {dead}\t{grant}\n# {dead}\t{grant}\n"));
    host.answers(&format!("allocate 2 --owner {}", owner.pid()), "0,1\n");
    assert_eq!(host.holders(), [(0, owner.pid()), (1, owner.pid())]);
}

#[test]
fn keys_of_a_later_version_survive() {
    let (owner, other) = (Process::start(), Process::start());
    let host = Sandbox::with_gpus(2);
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let host = {
        let text = host.text().replace('\n', ";later=%20x\n");
        host.recorded(text)
    };
    host.answers(&format!("1 --enable-coordination --owner {}", other.pid()), "1\n");
    assert_eq!(host.text().matches(";later=%20x").count(), 1);
    assert_eq!(host.holders(), [(0, owner.pid()), (1, other.pid())]);
}

#[test]
#[rustfmt::skip] // a table
fn a_line_that_begins_with_an_index_and_is_no_assignment_withholds_it() {
    let owner = Process::start();
    for (text, problem) in [
        ("1 47x\n",        "`1 47x` has `47x` where a pid should be"),
        ("1 \n",           "`1 ` has `` where a pid should be"),
        ("1 47\0\0\n",     "`1 47\\x00\\x00` has `47\\x00\\x00` where a pid should be"),
        ("1 4711",         "is cut short: the last line has no end"),
        ("1 0\n",          "`1 0` has 0 where a pid should be"),
        ("1 4194305\n",    "`1 4194305` has 4194305 where a pid should be"),
        ("1 1\tv=2\n",     "`1 1\\tv=2` is of format version 2, which this program does not know"),
    ] {
        let host = Sandbox::with_gpus(3).recorded(text);
        let line = format!("2 --enable-coordination --owner {}", owner.pid());
        host.command(&line).assert().code(0).stdout("0,2\n").stderr(format!(
            "gpu-coord: warning: coordination:1: {problem}, so that index 1 is withheld; correct the line, or delete it if no process holds the unit\n"
        ));
        // It is still withheld, by a line that now has a line end.
        host.command(&format!("1 --enable-coordination --owner {}", owner.pid())).assert().code(1).stdout("");
    }
}

#[test]
#[rustfmt::skip] // a table
fn what_has_no_index_refuses_the_file() {
    let owner = Process::start();
    let long = "x".repeat(10 << 20);
    let short = format!("{}...", "x".repeat(60));
    for (text, line, shown) in [
        ("0 1\nnonsense\n",   2, "nonsense"),
        ("\0\0\0\0\n",        1, "\\x00\\x00\\x00\\x00"),
        ("0 1\n1",            2, "1"),
        (" 1 4711\n",         1, " 1 4711"),
        (long.as_str(),       1, short.as_str()),
    ] {
        let host = Sandbox::with_gpus(2).recorded(text);
        let stderr = format!(
            "coordination:{line}: `{shown}` does not begin with an index and a blank; correct the line, or delete it if no process holds its unit"
        );
        host.refuses(&format!("1 --enable-coordination --owner {}", owner.pid()), 4, &stderr);
        host.refuses(&format!("deallocateAll --owner {}", owner.pid()), 4, &stderr);
        host.refuses("status", 4, &stderr);
        assert_eq!(fs::read(host.file()).unwrap(), text.as_bytes(), "nothing is lost");
    }
}

#[test]
fn damage_of_an_earlier_boot_is_cleared() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(2).recorded(format!("\0\0\0\n0 47x\n1 {}\n", std::process::id()));
    make_old(&host);
    host.answers(&format!("2 --enable-coordination --owner {}", owner.pid()), "0,1\n");
    assert_eq!(host.holders(), [(0, owner.pid()), (1, owner.pid())]);
    assert!(!host.text().contains('\0'));
}

#[test]
fn windows_line_ends_duplicates_and_an_index_past_the_host() {
    let (one, other, owner) = (Process::start(), dead_pid(), Process::start());
    let text = format!("0 {other}\r\n0 {}\r\n9 {}\r\n", one.pid(), one.pid());
    let host = Sandbox::with_gpus(2).recorded(text);
    host.answers(&format!("1 --enable-coordination --owner {}", owner.pid()), "1\n");
    host.refuses(
        &format!("1 --enable-coordination --owner {}", owner.pid()),
        1,
        "1 unit asked for, 0 of 2 can be given: 2 held by living owners (`gpu-coord status` names them)",
    );
}

#[test]
fn a_drained_unit_is_not_given() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(2).recorded("! 0\tv=1;uid=0;reason=too%20hot\n");
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "1\n");
    host.refuses(
        &format!("allocate 1 --owner {}", owner.pid()),
        1,
        "1 unit asked for, 0 of 2 can be given: 1 held by living owners (`gpu-coord status` names them); 1 drained",
    );
}

#[test]
fn what_is_printed() {
    let (host, owner) = (Sandbox::with_gpus(2), Process::start());
    for (what, answer) in [
        ("index", "0,1"),
        ("host-index", "0,1"),
        ("uuid", "GPU-00000000-0000-4000-8000-000000000000,GPU-00000000-0000-4000-8000-000000000001"),
        ("pci", "fffffff0:00:00.0,fffffff0:00:00.1"),
    ] {
        host.answers(&format!("2 --print {what}"), &format!("{answer}\n"));
        host.answers(&format!("allocate 2 --print {what} --owner {}", owner.pid()), &format!("{answer}\n"));
        host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    }
}

#[test]
fn indexes_are_what_the_owner_counts_where_it_sees_only_some() {
    let host = Sandbox::with_gpus(4);
    let owner = std::process::id().to_string();
    let run = |line: &str, variable: &str| {
        let mut command = host.command(line);
        command.env("CUDA_VISIBLE_DEVICES", variable).assert()
    };
    run("2", "3,1").code(0).stdout("0,1\n");
    run("2 --print host-index", "3,1").code(0).stdout("3,1\n");
    run("allocate 1", "3,1").code(0).stdout("0\n");
    assert_eq!(host.holders(), [(3, owner.parse().unwrap())]);
    run("allocate 1", "3,1").code(0).stdout("1\n");
    run("allocate 1", "").code(1).stdout("");
}

#[test]
fn a_warning_is_an_error_where_it_is_wanted() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(2).recorded("1 4711 x\n");
    let line = format!("allocate 1 --owner {}", owner.pid());
    let says = "coordination:1: `1 4711 x` has `4711 x` where a pid should be, so that index 1 is withheld; correct \
                the line, or delete it if no process holds the unit (an error by --strict)";
    host.refuses(&format!("{line} --strict"), 4, says);
    assert_eq!(host.text(), "1 4711 x\n", "nothing is given");
    host.command(&line).assert().code(0).stdout("0\n");
}
