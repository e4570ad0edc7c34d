//! Lines that others have written: in another pid namespace, before this boot, or as the script does.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use super::book::{Book, here};
use super::host::Unit;
use super::owner::{Name, Owner};
use super::season::Season;

impl Season<'_> {
    /// A line about a unit that no other names, or the end of one. The lock is had.
    pub(super) fn plant_in(&mut self, file: &mut File) {
        let book = Book::of(file);
        let kind = self.random.below(5);
        if kind == 0 {
            return self.lift(file, &book);
        }
        let is_free = |unit: &Unit| !self.drained.contains(&unit.0) && !book.names(*unit);
        let free: Vec<Unit> = self.host.units().into_iter().filter(is_free).collect();
        let idle: Vec<usize> = (0..self.owners.len()).filter(|at| !self.owners[*at].is_asking).collect();
        if free.is_empty() || idle.is_empty() {
            return;
        }
        let unit = free[self.random.below(free.len())];
        let at = idle[self.random.below(idle.len())];
        self.tally.planted += 1;
        match kind {
            1 if self.host.is_on_local_disk => {
                append(
                    file,
                    &ours(
                        self.tally.planted,
                        unit,
                        self.owners[at].name,
                        Some("0123456789abcdef0123456789abcdef"),
                        None,
                    ),
                );
                for call in &mut self.calls {
                    call.known.earlier.remove(&unit);
                }
            }
            2 if self.elsewhere.len() * 8 < free.len() => {
                append(file, &ours(self.tally.planted, unit, self.owners[at].name, None, Some("1")));
                self.elsewhere.insert(unit);
                self.calls.iter_mut().for_each(|call| call.known.most += 1);
            }
            3.. if self.host.shares == 1 && self.is_of_age() => self.as_the_script(file, unit, at),
            _ => {}
        }
    }

    /// Whoever had it elsewhere gives it back.
    fn lift(&mut self, file: &File, book: &Book) {
        if let Some((unit, at)) = book.elsewhere.first_key_value() {
            file.write_all_at(b"#", *at as u64).unwrap();
            self.elsewhere.remove(unit);
        }
    }

    /// Of an owner that lives and of one that does not: what the script gave stays theirs, and never comes back.
    fn as_the_script(&mut self, file: &mut File, (device, share): Unit, at: usize) {
        let Owner { name, is_dead, is_limited, .. } = self.owners[at];
        // It is of no namespace that is limited.
        if is_limited {
            return;
        }
        append(file, &format!("{device} {}\n", name.0));
        self.seen.unsettled.insert(name.0);
        for call in &mut self.calls {
            call.known.unsettled.remove(&name.0);
            call.known.dead.remove(&name);
            call.known.most += 1;
        }
        if !is_dead {
            self.owners[at].told.insert((device, share));
        }
    }
}

/// The `nth` of all.
fn ours(
    nth: usize,
    (device, share): Unit,
    (pid, start): Name,
    boot: Option<&str>,
    namespace: Option<&str>,
) -> String {
    let (own_boot, own_namespace) = here();
    let (boot, namespace) = (boot.unwrap_or(own_boot), namespace.unwrap_or(own_namespace));
    format!(
        "{device} {pid}\tv=1;grant={nth:016x};of=1;uuid=GPU-00000000-0000-4000-8000-{device:012x};slot={share};\
         start={start};boot={boot};pidns={namespace};uid=0\n"
    )
}

fn append(file: &mut File, line: &str) {
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
