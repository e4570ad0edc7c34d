//! The directory of the coordination file: who else can remove the file or replace it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use super::{Context, Findings};
use crate::host::{Host, mounts};

const CHECK: &str = "file";

/// Kernel settings, and what they prevent in a sticky, world-writable directory (proc_sys_fs(5)).
const PROTECTIONS: [(&str, &str); 3] = [
    ("protected_regular", "Flink's own script writes to what anybody has put in the place of the file"),
    ("protected_symlinks", "Flink's own script follows a link that anybody has put in the place of the file"),
    ("protected_hardlinks", "anybody can give the file a second name, and then it is refused"),
];

/// `path`: the coordination file, which need not exist.
pub(super) fn look(context: &Context<'_>, path: &Path, findings: &mut Findings) {
    let directory = mounts::directory(path);
    let Ok(metadata) = fs::metadata(directory) else { return };
    let of_file = fs::symlink_metadata(path).ok().map(|file| file.uid());
    let sight = Sight {
        mode: metadata.mode(),
        uid: metadata.uid(),
        trusted: [geteuid().as_raw()].into_iter().chain(of_file).collect(),
    };
    let shown = directory.display();
    match sight.danger() {
        Some(Danger::Anybody) => findings.fail(
            CHECK,
            format!(
                "{shown} is world-writable and not sticky, so anybody can remove the record or \
                 put another in its place; run `chmod +t {shown}`, or name a file elsewhere"
            ),
        ),
        Some(Danger::Owner) => findings.warn(
            CHECK,
            format!(
                "{shown} belongs to uid {}, who can remove the record or put another in its place; name a file in a \
                 directory of root's",
                sight.uid
            ),
        ),
        None => {}
    }
    if sight.is_open() && sight.is_sticky() {
        findings.ok(CHECK, format!("{shown} is sticky: only the file's owner and root can remove it"));
        protections(&context.host, shown.to_string().as_str(), findings);
    }
}

/// Who can do what in a directory.
struct Sight {
    mode: u32,
    uid: u32,
    /// The users, besides root, that can change the file anyway.
    trusted: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Danger {
    Anybody,
    Owner,
}

impl Sight {
    fn is_open(&self) -> bool {
        self.mode & 0o002 != 0
    }

    fn is_sticky(&self) -> bool {
        self.mode & 0o1000 != 0
    }

    fn danger(&self) -> Option<Danger> {
        if self.is_open() && !self.is_sticky() {
            return Some(Danger::Anybody);
        }
        (self.uid != 0 && !self.trusted.contains(&self.uid)).then_some(Danger::Owner)
    }
}

/// Settings that the kernel does not know are skipped.
fn protections(host: &Host, directory: &str, findings: &mut Findings) {
    for (name, what) in PROTECTIONS {
        let value = fs::read_to_string(host.proc(format!("sys/fs/{name}")));
        if value.is_ok_and(|value| value.trim() == "0") {
            findings
                .warn(CHECK, format!("fs.{name} is 0, so in {directory} {what}; set it to 1 with sysctl"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn who_can_remove_the_file() {
        for (case, mode, uid, trusted, danger) in [
            ("/var/tmp",                     0o41777, 0,    vec![0],       None),
            ("not sticky",                   0o40777, 0,    vec![0],       Some(Danger::Anybody)),
            ("not sticky, of our own",       0o40777, 1000, vec![1000],    Some(Danger::Anybody)),
            ("root's",                       0o40755, 0,    vec![1000],    None),
            ("a group's",                    0o40770, 0,    vec![1000],    None),
            ("our own",                      0o40755, 1000, vec![1000],    None),
            ("of the file's owner",          0o40755, 1001, vec![0, 1001], None),
            ("another's",                    0o40755, 1002, vec![0, 1001], Some(Danger::Owner)),
            ("another's, and sticky",        0o41777, 1002, vec![0, 1001], Some(Danger::Owner)),
        ] {
            assert_eq!(Sight { mode, uid, trusted }.danger(), danger, "{case}");
        }
    }
}
