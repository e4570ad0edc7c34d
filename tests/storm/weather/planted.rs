//! What others write: an operator, and whoever has a line there from another pid namespace, from before this boot, or
//! as the script does.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::fcntl::FlockArg;

use super::book::{self, Book, here};
use super::call::{Call, What};
use super::host::Unit;
use super::owner::{Name, Owner};
use super::season::Season;

/// Within a second of its birth, a file with lines of the script is waited upon.
const OF_AGE: Duration = Duration::from_millis(1_200);

/// No host's.
const EARLIER_BOOT: &str = "0123456789abcdef0123456789abcdef";

impl Season<'_> {
    fn is_of_age(&self) -> bool {
        self.since.elapsed() > OF_AGE
    }

    /// A line that somebody else has written, or its end.
    pub(super) fn plant(&mut self) {
        let (file, calls) = (self.host.file(), &mut self.calls);
        let mut file = book::lock(&file, FlockArg::LockExclusiveNonblock, || {
            calls.iter_mut().for_each(Call::go_on);
        });
        self.plant_in(&mut file);
    }

    /// An operator keeps a device back, or lets it be granted again.
    pub(super) fn keep_back(&mut self) {
        let device = u32::try_from(self.random.below(self.host.devices as usize)).unwrap();
        let is_drained = self.drained.contains(&device);
        // On a host of few devices there would be little left to fight for.
        if !is_drained && self.drained.len() * 8 >= self.host.devices as usize {
            return;
        }
        let what = if is_drained { What::Undrain(device) } else { What::Drain(device) };
        if is_drained {
            self.drained.remove(&device);
            for call in &mut self.calls {
                call.known.drained.remove(&device);
            }
        }
        let known = self.known(what);
        let nobody = self.born(None);
        let mut call = Call::start(&self.host, what, &nobody, false);
        call.known = known;
        let outcome = self.outcome(&mut call);
        self.take_note(&call, &outcome);
        self.dead.insert(nobody.bury());
        self.tally.calls += 1;
        if !is_drained {
            self.drained.insert(device);
            let shares = self.host.shares as usize;
            self.calls.iter_mut().for_each(|call| call.known.most += shares);
        }
    }

    /// A line about a unit that no other names, or the end of one. The lock is had.
    fn plant_in(&mut self, file: &mut File) {
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
        match kind {
            1 if self.host.is_on_local_disk => {
                self.append(
                    file,
                    &ours(self.tally.planted, unit, self.owners[at].name, Some(EARLIER_BOOT), None),
                );
                for call in &mut self.calls {
                    call.known.earlier.remove(&unit);
                }
            }
            2 if self.elsewhere.len() * 8 < free.len() => {
                self.append(file, &ours(self.tally.planted, unit, self.owners[at].name, None, Some("1")));
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
        self.append(file, &format!("{device} {}\n", name.0));
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

    fn append(&mut self, file: &mut File, line: &str) {
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(line.as_bytes()).unwrap();
        self.tally.planted += 1;
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
