//! What owners are judged by: processes, boots and clocks. Also what hides devices from us.

use std::time::Duration;

use super::{Context, Findings};
use crate::visible::Variables;

/// On a host that was not restored from a snapshot, the two clocks of a boot differ by less than this.
const APART: Duration = Duration::from_secs(60);

pub(super) fn look(context: &Context<'_>, findings: &mut Findings) {
    let host = &context.host;
    match host.check_proc() {
        Err(error) => findings.fail("proc", error.chain()),
        Ok(()) if !host.is_initial_pid_namespace() => findings.warn(
            "proc",
            "this is a pid namespace of its own: owners outside of it count as held; run gpu-coord reclaim on \
             the host",
        ),
        Ok(()) => findings.ok("proc", "every process of the host can be seen"),
    }
    if let Some(hides) = host.hides_processes() {
        findings.warn(
            "proc",
            format!(
                "/proc hides the processes of others ({hides}): run gpu-coord as root, or as a member of \
                 the group that gid= names"
            ),
        );
    }
    match host.boot_id() {
        Some(_) => findings.ok("boot", "boots can be told apart"),
        None => findings.warn(
            "boot",
            "the kernel's boot id cannot be read (a container mounts one of its own): units recorded in an \
             earlier boot are not taken over",
        ),
    }
    if host.clocks_apart().is_some_and(|apart| apart > APART) {
        findings.warn(
            "boot",
            "the machine was restored from a snapshot, or its clock was set: a line of Flink's script whose \
             pid was reused withholds its GPU until that process ends",
        );
    }
    variables(&context.surroundings.visible, findings);
}

fn variables(visible: &Variables, findings: &mut Findings) {
    let Variables { cuda, nvidia, rocr, hip } = visible;
    let set = [
        ("CUDA_VISIBLE_DEVICES", cuda),
        ("NVIDIA_VISIBLE_DEVICES", nvidia),
        ("ROCR_VISIBLE_DEVICES", rocr),
        ("HIP_VISIBLE_DEVICES", hip),
    ];
    for (name, value) in set {
        if let Some(value) = value {
            findings.warn(
                "proc",
                format!("{name}={value} is set here: processes started from here are granted only these devices; unset \
                         it, or use --ignore-visible-devices"),
            );
        }
    }
}
