//! The environment, which is read here, once, and nowhere else.

#![expect(unsafe_code, reason = "the auxiliary vector has no safe wrapper")]

use std::ffi::OsString;

use super::variables::{GRANT, Variable};
use crate::host::owner::Service;
use crate::notes::Notes;
use crate::visible::Variables;

/// What the environment says apart from options.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// What the service manager says about the unit that this process belongs to.
    pub(crate) service: Service,
    /// The variables that hide devices.
    pub(crate) visible: Variables,
    /// The grant of the `gpu-coord exec` that we run inside, as it has set it.
    pub(crate) grant: Option<String>,
    /// Whether to use no colours: `NO_COLOR` (no-color.org) is set, or the terminal has none.
    pub(crate) no_color: bool,
    /// Where Flink is.
    pub(crate) flink_home: Option<String>,
    /// The PATH that was inherited.
    pub(crate) path: Option<OsString>,
    /// Whether the program runs with more privileges than its caller (AT_SECURE): nothing that the caller could set is
    /// trusted.
    pub(crate) is_privileged: bool,
}

impl Surroundings {
    /// The PATH to search for tools, if not the inherited one.
    pub(crate) fn search_path(&self) -> Option<OsString> {
        self.is_privileged.then(|| "/usr/sbin:/usr/bin:/sbin:/bin".into())
    }
}

/// Everything that is ever read from the environment.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The `GPU_COORD_` variables that are set and not empty.
    variables: Vec<Variable>,
    pub(super) surroundings: Surroundings,
}

impl Environment {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub(super) fn read() -> Environment {
        Environment::from_pairs(&std::env::vars_os().collect::<Vec<_>>(), is_privileged())
    }

    pub(super) fn from_pairs(pairs: &[(OsString, OsString)], is_privileged: bool) -> Environment {
        let value = |name: &str| {
            let (_, value) = pairs.iter().find(|(other, _)| other == name && !is_privileged)?;
            Some(value.to_string_lossy().into_owned())
        };
        let path = pairs.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        Environment {
            variables: pairs.iter().filter_map(|(name, value)| Variable::new(name, value)).collect(),
            surroundings: Surroundings {
                service: Service::from_environment(value),
                visible: Variables::from_environment(value),
                no_color: value("NO_COLOR").is_some_and(|set| !set.is_empty())
                    || value("TERM").is_some_and(|terminal| terminal == "dumb"),
                flink_home: value("FLINK_HOME").filter(|home| !home.is_empty()),
                grant: value(GRANT).filter(|grant| !grant.is_empty()),
                path,
                is_privileged,
            },
        }
    }

    /// The variables that set options; none if the caller has fewer privileges than the program.
    pub(super) fn trusted(&self, notes: &mut Notes) -> &[Variable] {
        if !self.surroundings.is_privileged {
            return &self.variables;
        }
        if !self.variables.is_empty() {
            notes.warn("the environment is ignored: this program runs with more rights than its caller");
        }
        &[]
    }
}

/// Whether the kernel started this program with more privileges than its caller has: set-user-ID, set-group-ID or file
/// capabilities.
fn is_privileged() -> bool {
    // SAFETY: reads a word of the auxiliary vector, which outlives every thread.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &[(&str, &str)] = &[
        ("SYSTEMD_EXEC_PID", "12"),
        ("MAINPID", "34"),
        ("INVOCATION_ID", "0123456789abcdef0123456789abcdef"),
        ("CUDA_VISIBLE_DEVICES", "1,0"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("ROCR_VISIBLE_DEVICES", "2"),
        ("HIP_VISIBLE_DEVICES", ""),
        ("GPU_COORD_PRINT", "uuid"),
        ("GPU_COORD_ROOT", ""),
        ("PRINT", "pci"),
    ];

    fn environment(set: &[(&str, &str)], is_privileged: bool) -> Environment {
        let pairs: Vec<_> = set.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Environment::from_pairs(&pairs, is_privileged)
    }

    fn service(set: &[(&str, &str)]) -> Service {
        Service::from_environment(|name| {
            set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_ordinary_call_believes_its_environment() {
        let environment = environment(SET, false);
        let mut notes = Notes::default();
        assert_eq!(environment.trusted(&mut notes).len(), 1, "empty is unset, and PRINT is not ours");
        assert_eq!(notes.warnings, Vec::<String>::new());
        assert_eq!(environment.surroundings.service, service(SET));
        assert_ne!(environment.surroundings.service, Service::default());
        let set = |value: &str| Some(value.to_owned());
        let visible = Variables { cuda: set("1,0"), nvidia: set("all"), rocr: set("2"), hip: set("") };
        assert_eq!(environment.surroundings.visible, visible);
        assert_eq!(environment.surroundings.search_path(), None);
    }

    #[test]
    fn raised_privilege_believes_nothing() {
        let environment = environment(SET, true);
        let mut notes = Notes::default();
        assert!(environment.trusted(&mut notes).is_empty());
        assert_eq!(
            notes.warnings,
            ["the environment is ignored: this program runs with more rights than its caller"]
        );
        assert_eq!(environment.surroundings.service, Service::default());
        assert_eq!(environment.surroundings.visible, Variables::default());
        assert_eq!(environment.surroundings.search_path(), Some("/usr/sbin:/usr/bin:/sbin:/bin".into()));
    }

    #[test]
    fn no_visible_device_differs_from_no_word_of_it() {
        let visible = |set: &[(&str, &str)]| environment(set, false).surroundings.visible.cuda;
        assert_eq!(visible(&[("CUDA_VISIBLE_DEVICES", "")]).as_deref(), Some(""));
        assert_eq!(visible(&[]), None);
    }
}
