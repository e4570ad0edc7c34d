//! The sources that look at the host: asked in turn until one answers.

use std::time::{Duration, Instant};

use crate::device::Inventory;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::inventory::answer::{Answer, Found, Silence};
use crate::inventory::source::{Probe, Source};
use crate::inventory::{Settings, amd_smi, answered, distinct, nvidia_smi, nvml, procfs, rocm_smi, sysfs};
use crate::notes::Notes;

/// Why none of the sources that were asked gave an answer.
pub(super) type Silent = Vec<(Probe, Silence)>;

/// The devices of the first of `probes` that answers. `is_last`: no other source is asked after them.
pub(super) fn first(
    probes: &[Probe],
    is_last: bool,
    host: &Host,
    settings: &Settings,
    deadline: Deadline,
    notes: &mut Notes,
) -> Result<Inventory, Silent> {
    let mut silent = Vec::new();
    for (position, &probe) in probes.iter().enumerate() {
        if is_settled(probe, &silent) {
            continue;
        }
        let since = Instant::now();
        let limit = share(deadline.left(), is_last && position + 1 == probes.len());
        match ask(probe, host, settings, limit, notes).and_then(distinguishable) {
            Ok(found) => {
                notes.detail(answered(probe.name(), found.devices.len(), since));
                return Ok(accept(probe, found, &silent, notes));
            }
            Err(silence) => {
                notes.detail(format!("source {}: {silence} ({:.1?})", probe.name(), since.elapsed()));
                silent.push((probe, silence));
            }
        }
    }
    Err(silent)
}

fn ask(probe: Probe, host: &Host, settings: &Settings, limit: Duration, notes: &mut Notes) -> Answer {
    match probe {
        Probe::Nvml => nvml::read(host, settings, limit, notes),
        Probe::NvidiaSmi => nvidia_smi::read(host, settings, limit),
        Probe::Procfs => procfs::read(host),
        Probe::Sysfs => sysfs::read(host),
        Probe::AmdSmi => amd_smi::read(host, settings, limit),
        Probe::RocmSmi => rocm_smi::read(host, settings, limit),
    }
}

/// Whether a source need not be asked, since its driver has already said that it drives nothing. The source would only
/// read the driver's list, which contains even cards that the driver could not start.
fn is_settled(probe: Probe, silent: &[(Probe, Silence)]) -> bool {
    match probe {
        Probe::Nvml | Probe::Sysfs => false,
        Probe::NvidiaSmi | Probe::Procfs | Probe::AmdSmi | Probe::RocmSmi => {
            silent.iter().any(|(_, why)| matches!(why, Silence::Nothing { sure: true, .. }))
        }
    }
}

/// How much of the time left one source gets: half, so that the next can still answer.
fn share(left: Duration, is_last: bool) -> Duration {
    if is_last { left } else { left / 2 }
}

fn distinguishable(found: Found) -> Answer {
    match distinct::check(&found.devices) {
        Ok(()) => Ok(found),
        Err(problem) => {
            Err(Silence::Broken { why: anyhow::Error::msg(problem), cure: "report this to the vendor" })
        }
    }
}

fn accept(probe: Probe, found: Found, silent: &[(Probe, Silence)], notes: &mut Notes) -> Inventory {
    let source = probe.name();
    for (failed, why) in silent.iter().filter(|(_, why)| why.is_failure()) {
        let cure = why.cure().map(|cure| format!("; {cure}")).unwrap_or_default();
        notes.warn(format!("devices are read from {source}, since {} failed: {why}{cure}", failed.name()));
    }
    notes.warnings.extend(found.warnings);
    let Found { devices, driver_version, tells_instances, .. } = found;
    Inventory { source: source.to_owned(), driver_version, devices, tells_instances }
}

/// Why there is no inventory. Too slow comes before broken, and broken before "there is no device", since a source that
/// failed could have named one.
pub(super) fn refusal(silent: &[(Probe, Silence)], settings: &Settings) -> Error {
    let mut none = match (&settings.driver_root, &settings.source) {
        (Some(_), _) => {
            "see that --driver-root names the directory that contains the driver's `usr`, or leave it out"
        }
        (None, Source::Probe(_)) => "leave --source out, so that every source is asked",
        (None, _) => {
            "load the driver (in a container: pass the GPUs in), or use `--source file:PATH` or `--source simulated:N`, \
             which need none"
        }
    };
    const UNSURE: &str = "run it by hand, and see that it is the vendor's own";
    let (mut broken, mut unsure) = (None, None);
    for (probe, why) in silent {
        match why {
            Silence::Late { limit, cure, .. } => return late(*probe, *limit, cure, silent),
            Silence::Broken { cure, .. } => broken = broken.or(Some(*cure)),
            // Another program may have answered under the tool's name.
            Silence::Nothing { sure: false, .. } if *probe == Probe::NvidiaSmi => unsure = Some(UNSURE),
            Silence::Nothing { .. } => none = "if it has one, `dmesg` says why the driver did not start it",
            Silence::Absent(_) => {}
        }
    }
    let reasons = reasons(silent.iter());
    Error::Inventory(match broken.or(unsure) {
        Some(cure) => format!("the devices cannot be read: {reasons}; {cure}"),
        None => format!("no GPU on this host: {reasons}; {none}"),
    })
}

/// Each source with its reason, as one line.
pub(super) fn reasons<'a>(silent: impl Iterator<Item = &'a (Probe, Silence)>) -> String {
    silent.map(|(probe, why)| format!("{}: {why}", probe.name())).collect::<Vec<_>>().join("; ")
}

/// The source that was too slow comes first.
fn late(probe: Probe, limit: Duration, cure: &str, silent: &[(Probe, Silence)]) -> Error {
    let (waited, others): (Vec<_>, Vec<_>) = silent.iter().partition(|(other, _)| *other == probe);
    let mut clauses: Vec<String> = waited.iter().map(|(_, why)| why.to_string()).collect();
    clauses.extend(others.iter().map(|silence| reasons([*silence].into_iter())));
    Error::Late { name: probe.name(), limit, problem: format!("{}; {cure}", clauses.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn absent() -> Silence {
        Silence::Absent("not there".to_owned())
    }

    fn nothing(sure: bool) -> Silence {
        Silence::Nothing { why: "none".to_owned(), sure }
    }

    fn broken() -> Silence {
        let why = anyhow::anyhow!("Input/output error").context("cannot list it");
        Silence::Broken { why, cure: "mend it" }
    }

    fn late() -> Silence {
        Silence::Late {
            limit: Duration::from_millis(500),
            why: "it did not end".to_owned(),
            cure: "wait longer",
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn no_gpu_and_a_broken_driver_are_told_apart() {
        for (smi, procfs, exit, says) in [
            (absent(),       absent(),       Exit::Host,     "no GPU on this host: nvidia-smi: not there; procfs: not there; load the driver (in a container: pass the GPUs in), or use `--source file:PATH` or `--source simulated:N`, which need none"),
            (nothing(true),  absent(),       Exit::Host,     "no GPU on this host: nvidia-smi: none; procfs: not there; if it has one, `dmesg`"),
            (absent(),       nothing(false), Exit::Host,     "no GPU on this host: nvidia-smi: not there; procfs: none; if it has one, `dmesg`"),
            (nothing(false), absent(),       Exit::Host,     "the devices cannot be read: nvidia-smi: none; procfs: not there; run it by hand"),
            (broken(),       absent(),       Exit::Host,     "the devices cannot be read: nvidia-smi: cannot list it: Input/output error; procfs: not there; mend it"),
            (nothing(false), broken(),       Exit::Host,     "the devices cannot be read: nvidia-smi: none; procfs: cannot list it"),
            (late(),         broken(),       Exit::Deadline, "source nvidia-smi gave no answer in the 0.5 s that it had of the deadline: it did not end; procfs: cannot list it: Input/output error; "),
            (absent(),       late(),         Exit::Deadline, "source procfs gave no answer in the 0.5 s that it had of the deadline: it did not end; nvidia-smi: not there; wait longer"),
        ] {
            let silent = [(Probe::NvidiaSmi, smi), (Probe::Procfs, procfs)];
            let error = refusal(&silent, &Settings::of(Source::Auto));
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.exit(), exit, "{error}");
        }
    }

    #[test]
    fn only_a_source_that_failed_is_warned_of() {
        let warnings = |silence| {
            let mut notes = Notes::default();
            let found = Found {
                devices: Vec::new(),
                driver_version: None,
                warnings: Vec::new(),
                tells_instances: true,
            };
            accept(Probe::Procfs, found, &[(Probe::NvidiaSmi, silence)], &mut notes);
            notes.warnings
        };
        assert_eq!(warnings(absent()), [""; 0]);
        assert_eq!(
            warnings(broken()),
            [
                "devices are read from procfs, since nvidia-smi failed: cannot list it: Input/output error; mend it"
            ]
        );
        assert_eq!(warnings(nothing(false)).len(), 1);
    }

    #[test]
    fn the_kernels_list_is_not_asked_when_the_driver_says_none() {
        assert!(is_settled(Probe::Procfs, &[(Probe::NvidiaSmi, nothing(true))]));
        assert!(!is_settled(Probe::Procfs, &[(Probe::NvidiaSmi, nothing(false))]));
        assert!(!is_settled(Probe::Procfs, &[(Probe::NvidiaSmi, broken())]));
    }

    #[test]
    fn a_source_leaves_half_of_the_time_to_the_next() {
        assert_eq!(share(Duration::from_secs(3), false), Duration::from_millis(1500));
        assert_eq!(share(Duration::from_secs(3), true), Duration::from_secs(3));
        assert_eq!(share(Duration::ZERO, true), Duration::ZERO);
    }
}
