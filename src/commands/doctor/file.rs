//! The coordination file: where it is, who owns it, whether it can be locked, and what else may remove it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Context, Findings, directory};
use crate::coordination::ledger::Ledger;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::host::mounts;
use crate::notes::Notes;

const CHECK: &str = "file";

/// Returns whether there is a record to look at.
pub(super) fn look(context: &Context<'_>, path: &Path, findings: &mut Findings) -> bool {
    let mut notes = Notes::default();
    if let Err(error) = context.check_place(path, &mut notes) {
        findings.fail(CHECK, error.chain());
        return false;
    }
    notes.warnings.iter().for_each(|warning| findings.warn(CHECK, warning));
    let shown = path.display();
    if context.host.mount_of(path).is_some_and(|mount| mount.is_network()) {
        findings.warn(
            CHECK,
            format!("{shown} is on a network file system, whose locks may hang or not hold; use a local one"),
        );
    }
    aging(&context.host, path, findings);
    let parent = mounts::directory(path);
    if !parent.is_dir() {
        let directory = parent.display();
        findings.fail(
            CHECK,
            format!("{shown}: there is no directory {directory}; make it, or name another file"),
        );
        return false;
    }
    directory::look(context, path, findings);
    // Half of the time, so that a held lock leaves time for the other checks.
    let deadline = Deadline::after(context.deadline.left() / 2);
    match Ledger::open_existing(&context.host, path, None, deadline) {
        Ok(None) => {
            findings.ok(CHECK, format!("{shown} does not exist yet: the first allocation creates it"));
            false
        }
        Ok(Some(_)) => {
            findings.ok(CHECK, format!("{shown} can be locked and written to{}", whose(path)));
            true
        }
        Err(error) => {
            findings.fail(CHECK, error.chain());
            true
        }
    }
}

fn whose(path: &Path) -> String {
    let Ok(metadata) = fs::metadata(path) else { return String::new() };
    format!(" (mode {:04o}, uid {}, gid {})", metadata.mode() & 0o7777, metadata.uid(), metadata.gid())
}

/// systemd-tmpfiles removes files that nobody has touched for 10 days below `/tmp`, and for 30 days below `/var/tmp`
/// (tmpfiles.d(5)), and with them the record of who holds what.
fn aging(host: &Host, path: &Path, findings: &mut Findings) {
    let is_aged = path.starts_with("/tmp") || path.starts_with("/var/tmp");
    let directories = ["etc/tmpfiles.d", "run/tmpfiles.d", "usr/lib/tmpfiles.d"].map(|name| host.path(name));
    let has_tmpfiles = directories.iter().any(|directory| directory.is_dir());
    if !is_aged || !has_tmpfiles {
        return;
    }
    let files = directories.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
    let mut texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    if texts.any(|text| text.lines().any(|line| keeps(line, path))) {
        findings.ok(CHECK, "systemd-tmpfiles leaves it alone");
        return;
    }
    findings.warn(
        CHECK,
        format!(
            "systemd-tmpfiles removes {} when nobody has touched it for some weeks, even if GPUs are held; put a \
             line `x {}` into a file in /etc/tmpfiles.d",
            path.display(),
            path.display()
        ),
    );
}

/// Lines of type `x` and `X` keep a path from being removed, and so does one that creates it.
fn keeps(line: &str, path: &Path) -> bool {
    let mut words = line.split_ascii_whitespace();
    let (kind, named) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    matches!(kind.chars().next(), Some('x' | 'X' | 'f' | 'F')) && Path::new(named) == path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn a_line_of_tmpfiles_keeps_its_path() {
        for (line, is_kept) in [
            ("x /var/tmp/flink-gpu-coordination",                 true),
            ("f /var/tmp/flink-gpu-coordination 0660 root flink", true),
            ("f+! /var/tmp/flink-gpu-coordination 0660 root x",   true),
            ("x /var/tmp/other",                                  false),
            ("q /var/tmp 1777 root root 30d",                     false),
            ("# x /var/tmp/flink-gpu-coordination",               false),
            ("",                                                  false),
        ] {
            assert_eq!(keeps(line, Path::new("/var/tmp/flink-gpu-coordination")), is_kept, "{line}");
        }
    }
}
