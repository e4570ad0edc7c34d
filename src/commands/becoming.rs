//! Becoming the command of `exec`, with the variables that its runtime and processes inside it need.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::handover::{Given, Handover};
use super::{Context, runtime};
use crate::cli::{self, Exec, GRANT, RequestOptions};
use crate::error::Error;
use crate::exit::Exit;
use crate::host::account::{Account, Entry};
use crate::host::deadline::Deadline;
use crate::host::execute;
use crate::inventory::Source;
use crate::notes::Notes;

/// For the warnings, which cannot be said later.
const SAYS_WITHIN: Duration = Duration::from_millis(100);

/// What this process is about to become.
pub(super) struct Becoming<'a> {
    options: &'a Exec,
    path: PathBuf,
    account: Option<Account>,
    /// Variables to set, or, with `None`, to unset.
    environment: Vec<(&'static str, Option<OsString>)>,
    context: &'a Context<'a>,
}

impl<'a> Becoming<'a> {
    /// Fails if the command or the user does not exist, before anything is granted.
    pub(super) fn new(context: &'a Context<'a>, options: &'a Exec) -> Result<Becoming<'a>, Error> {
        let name = options.command.first().map(OsString::as_os_str).unwrap_or_default();
        let cannot = |source| Error::Run { path: name.into(), source };
        let path = execute::find(name, context.surroundings.path.as_ref()).map_err(cannot)?;
        let account = options.user.as_deref().map(|text| context.host.account(text)).transpose()?;
        if account.is_some() && !nix::unistd::geteuid().is_root() {
            return Err(Error::Usage(
                "--user requires root, which may run a command as another user".to_owned(),
            ));
        }
        Ok(Becoming { options, path, account, environment: Vec::new(), context })
    }

    pub(super) fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    /// The command is granted nothing, and must not see any device.
    pub(super) fn sees_nothing(&mut self) {
        for name in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"] {
            self.set(name, "");
        }
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.push((name, Some(value.into())));
    }

    /// Sets the variables that tell calls inside where to ask and what to expect there.
    fn say_where(&mut self) -> Result<(), Error> {
        let RequestOptions { file, source, common, .. } = &self.options.request;
        self.set_path("GPU_COORD_COORDINATION_FILE", Some(&file.coordination_file))?;
        self.set_path("GPU_COORD_CONFIG", common.config.as_deref())?;
        self.set_path("GPU_COORD_DRIVER_ROOT", source.driver_root.as_deref())?;
        if let Some(key) = &common.config_key {
            self.set("GPU_COORD_CONFIG_KEY", key);
        }
        if let Some(vendor) = source.vendor {
            self.set("GPU_COORD_VENDOR", vendor.to_string());
        }
        match &source.source {
            // A variable that is set may have been overridden by an option.
            Source::Auto => self.environment.push(("GPU_COORD_SOURCE", None)),
            Source::File(path) => {
                let mut file = OsString::from("file:");
                file.push(absolute(path)?);
                self.set("GPU_COORD_SOURCE", file);
            }
            source => self.set("GPU_COORD_SOURCE", source.to_string()),
        }
        Ok(())
    }

    fn set_path(&mut self, name: &'static str, path: Option<&Path>) -> Result<(), Error> {
        path.map(absolute).transpose()?.into_iter().for_each(|path| self.set(name, path));
        Ok(())
    }

    /// Returns only if it fails.
    pub(super) fn become_it(&self, notes: &Notes) -> Result<Infallible, Error> {
        let common = &self.options.request.common;
        // Others wait for the lock, and whoever does not read this is not to keep them.
        let patience = self.context.deadline.left().min(SAYS_WITHIN);
        cli::report(&Ok(Exit::Success), notes, common.verbose, Deadline::after(patience));
        let cannot = |source: io::Error| Error::Run { path: self.path.clone(), source };
        let mut command = Command::new(&self.path);
        command.arg0(&self.options.command[0]).args(&self.options.command[1..]);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(account) = &self.account {
            let entry = account.entry.as_ref();
            command.envs(entry.iter().flat_map(|entry| {
                let Entry { name, home, shell } = entry;
                [("USER", name), ("LOGNAME", name), ("HOME", home), ("SHELL", shell)]
            }));
            let user = self.options.user.clone().unwrap_or_default();
            execute::drop_rights(account).map_err(|source| Error::Become { user, source })?;
        }
        Err(cannot(execute::exec(&mut command)))
    }
}

/// The command may have another working directory when it asks.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(Error::io("find", path))
}

impl Handover for Becoming<'_> {
    fn prepare(&mut self, given: &Given<'_>) -> Result<(), Error> {
        let variables = runtime::variables(&given.told())?.into_iter();
        self.environment.extend(variables.map(|(name, value)| (name, value.map(OsString::from))));
        self.set(GRANT, format!("{:016x}", given.grant.id));
        self.say_where()
    }

    fn deliver(&mut self, notes: &Notes) -> Result<(), Error> {
        self.become_it(notes).map(|never| match never {})
    }

    /// This process is about to exit, and may no longer have the privileges to undo anything.
    fn outlives_failure(&self) -> bool {
        false
    }
}
