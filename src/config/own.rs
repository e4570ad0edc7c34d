//! What is below the key `gpu-coord`, which the plugin does not know.

use std::path::PathBuf;

use super::yaml::{Node, Position, Problem};
use super::{Config, MpsDirectories, end, resource_name};

/// Whose units are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The name that the owner gives itself (`--namespace`): a convention.
    Namespace(String),
    /// The user that the owner runs as, by name or number: a fact that we record.
    User(String),
}

/// How many units of a resource may be held at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) whose: Whose,
    pub(crate) resource: String,
    pub(crate) limit: u64,
    pub(crate) position: Position,
}

impl Quota {
    /// The user, if it is a user's quota.
    pub(crate) fn user(&self) -> Option<&str> {
        match &self.whose {
            Whose::User(name) => Some(name),
            Whose::Namespace(_) => None,
        }
    }
}

/// A default for an option, by its name without `--`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preset {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Of the name.
    pub(crate) position: Position,
}

pub(super) fn parse(node: Node<'_, '_>, config: &mut Config) -> Result<(), Problem> {
    let mut keys = node.keys("gpu-coord")?;
    if let Some(quotas) = keys.take("quotas") {
        config.quotas = parse_quotas(quotas)?;
    }
    if let Some(options) = keys.take("options") {
        config.options = parse_options(options)?;
    }
    if let Some(mps) = keys.take("mps") {
        config.mps = parse_mps(mps)?;
    }
    end(keys)
}

/// `team-a: {nvidia.com/gpu: 2}`, `user:flink: {...}`
fn parse_quotas(node: Node<'_, '_>) -> Result<Vec<Quota>, Problem> {
    let mut quotas = Vec::new();
    for (name, key, limits) in
        node.entries().ok_or_else(|| node.problem("quotas takes namespaces with limits"))?
    {
        let whose = match name.strip_prefix("user:") {
            Some("") => return Err(key.problem("`user:` takes the name or the number of a user")),
            Some(user) => Whose::User(user.to_owned()),
            None => Whose::Namespace(name.clone()),
        };
        let entries = limits.entries();
        for (resource, key, limit) in
            entries.ok_or_else(|| limits.problem("a quota takes resources with limits"))?
        {
            let number = limit.integer().and_then(|number| u64::try_from(number).ok());
            let number = number
                .ok_or_else(|| limit.problem(format!("the limit of {resource} takes a whole number")))?;
            let (resource, position) = (resource_name(&resource, key)?, key.position());
            quotas.push(Quota { whose: whose.clone(), resource, limit: number, position });
        }
    }
    Ok(quotas)
}

/// Not checked here: whether the options exist.
fn parse_options(node: Node<'_, '_>) -> Result<Vec<Preset>, Problem> {
    let entries = node.entries().ok_or_else(|| node.problem("options takes options with values"))?;
    let option = |(name, key, value): (String, Node<'_, '_>, Node<'_, '_>)| {
        let value = value.string(&name)?;
        Ok(Preset { name, value, position: key.position() })
    };
    entries.into_iter().map(option).collect()
}

fn parse_mps(node: Node<'_, '_>) -> Result<MpsDirectories, Problem> {
    let mut keys = node.keys("mps")?;
    let mut directories = MpsDirectories::default();
    if let Some(pipe) = keys.take("pipe-directory") {
        directories.pipe = directory("pipe-directory", pipe)?;
    }
    if let Some(log) = keys.take("log-directory") {
        directories.log = directory("log-directory", log)?;
    }
    end(keys)?;
    Ok(directories)
}

/// Only absolute paths: a client runs in another directory than the daemon.
fn directory(what: &str, node: Node<'_, '_>) -> Result<PathBuf, Problem> {
    let path = node.text().map(PathBuf::from).filter(|path| path.is_absolute());
    path.ok_or_else(|| node.problem(format!("{what} takes an absolute path")))
}
