//! What a refusal of the kernel means, in words that say what to do. The message begins with the group.

use std::io;

use crate::cgroup::denylist::Denylist;

pub(super) const NO_GROUP: &str = "is not a control group of cgroup v2";

pub(super) const ROOT: &str =
    "is the root of the control groups, which contains the whole host; name a group below it";

pub(super) const NOT_IN_FORCE: &str =
    "a device program was attached but did not take effect; it was detached again";

/// With that flag the kernel lets a program below override the one above.
pub(super) const OVERRIDES: &str = "a device program above it, attached with BPF_F_ALLOW_OVERRIDE, \
    would no longer be in force; attach that one with BPF_F_ALLOW_MULTI";

pub(super) const NOT_SHOWN: &str = "the kernel does not show what the device program of gpu-coord denies: that \
    takes CAP_SYS_ADMIN in the initial user namespace, and net.core.bpf_jit_harden below 2 when it was loaded";

/// The program has been loaded, so it is not a privilege that is missing.
const FORBIDDEN: &str = "no device program can be attached: one without BPF_F_ALLOW_MULTI is attached to it or \
    above it, and forbids others; attach that one with BPF_F_ALLOW_MULTI";

const FULL: &str = "no device program can be attached: it has as many as the kernel allows; detach others";

const NO_RIGHT_TO_LOAD: &str = "no device program can be loaded: that takes CAP_SYS_ADMIN, or CAP_BPF with \
    CAP_NET_ADMIN, in the initial user namespace, and no seccomp filter that forbids bpf(2)";

const NO_RIGHT_TO_LOOK: &str = "its device programs cannot be looked at: that takes CAP_SYS_ADMIN in the \
    initial user namespace, and no seccomp filter that forbids bpf(2)";

pub(super) fn too_large(denied: &Denylist) -> String {
    format!("{} ranges of devices are more than a device program can deny", denied.spans.len())
}

pub(super) fn not_opened(error: &io::Error) -> String {
    format!("the control group cannot be opened: {error}")
}

pub(super) fn not_loaded(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => NO_RIGHT_TO_LOAD.to_owned(),
        Some(libc::ENOSYS) => {
            format!("no device program can be loaded: {error}; the kernel needs CONFIG_CGROUP_BPF")
        }
        _ => format!("no device program can be loaded: {error}"),
    }
}

pub(super) fn not_attached(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => FORBIDDEN.to_owned(),
        Some(libc::E2BIG) => FULL.to_owned(),
        _ => format!("no device program can be attached: {error}"),
    }
}

pub(super) fn not_read(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => NO_RIGHT_TO_LOOK.to_owned(),
        _ => format!("its device programs cannot be looked at: {error}"),
    }
}

/// The new program is attached, but an earlier one could not be detached.
pub(super) fn not_replaced(error: &io::Error) -> String {
    format!(
        "more is denied than should be: an earlier device program of gpu-coord cannot be detached ({error}); \
         retry, or remove the group"
    )
}

pub(super) fn not_lifted(error: &io::Error) -> String {
    format!("the device program of gpu-coord cannot be detached: {error}; remove the group")
}
