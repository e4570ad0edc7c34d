//! The configuration file: pure.
//!
//! Its format is that of NVIDIA's Kubernetes device plugin, version v1, so that one file serves both:
//! `flags.migStrategy` and `sharing` mean the same here, other keys of the plugin are ignored and only listed, and keys
//! that the plugin does not know are errors. Our own settings are below the key `gpu-coord`. A file without a version
//! is v1, as for the plugin.
//!
//! Source of the format: README of the device plugin, "Configuration", "Shared Access to GPUs".

mod own;
mod sharing;
#[cfg(test)]
mod tests;
pub(crate) mod yaml;

use std::path::PathBuf;

use crate::error::Error;
use crate::nearest::nearest;
use yaml::{Keys, Node, Position, Problem, documents};

pub(crate) use own::{Preset, Quota, Whose};
pub(crate) use sharing::{SharedDevices, SharedResource, Sharing, Way};

/// Which MIG instances are offered, and under which name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MigStrategy {
    /// No instances and no divided cards.
    None,
    /// Instances as whole devices, if all are alike.
    Single,
    /// Instances by profile.
    Mixed,
}

/// Where the MPS control daemon listens, and where it logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MpsDirectories {
    pub(crate) pipe: PathBuf,
    pub(crate) log: PathBuf,
}

impl Default for MpsDirectories {
    /// Those of CUDA (MPS documentation, "Environment Variables").
    fn default() -> Self {
        MpsDirectories { pipe: "/tmp/nvidia-mps".into(), log: "/var/log/nvidia-mps".into() }
    }
}

/// What a configuration file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    /// The file it was read from; empty until the caller sets it.
    pub(crate) path: PathBuf,
    /// `None`: the file does not say.
    pub(crate) mig: Option<MigStrategy>,
    pub(crate) sharing: Option<Sharing>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) mps: MpsDirectories,
    pub(crate) options: Vec<Preset>,
    /// Keys that only the plugin uses.
    pub(crate) ignored: Vec<String>,
}

impl Config {
    /// An error for what the file says at that position, which does not fit this host.
    pub(crate) fn error(&self, (line, column): Position, problem: String) -> Error {
        Error::Configuration { path: self.path.clone(), line, column, problem }
    }

    fn positions(&mut self) -> impl Iterator<Item = &mut Position> {
        let resources = self.sharing.iter_mut().flat_map(|sharing| &mut sharing.resources);
        let quotas = self.quotas.iter_mut().map(|quota| &mut quota.position);
        let options = self.options.iter_mut().map(|option| &mut option.position);
        resources.map(|resource| &mut resource.position).chain(quotas).chain(options)
    }
}

/// Characters of a resource's name, including its domain.
const LONGEST_NAME: usize = 63;
/// Keys that configure the plugin itself.
const OF_THE_PLUGIN: [&str; 3] = ["resources", "imex", "health"];

/// `key`: which configuration to use if the text is a ConfigMap with several.
pub(crate) fn parse(text: &str, key: Option<&str>) -> Result<Config, Problem> {
    let documents = documents(text)?;
    let root = match &documents[..] {
        [] => return Ok(Config::default()),
        [only] => Node::of(only),
        [_, second, ..] => {
            return Err(Node::of(second).problem("a configuration is one document, and here begins another"));
        }
    };
    let data =
        root.get("data").filter(|_| root.get("kind").and_then(Node::text).as_deref() == Some("ConfigMap"));
    match (data, key) {
        (Some(data), key) => of_config_map(text, data, key),
        (None, Some(key)) => Err(root
            .problem(format!("not a ConfigMap, so there is no `{key}` to choose; leave --config-key out"))),
        (None, None) => config(root),
    }
}

/// Each value of a ConfigMap's data is the text of a configuration.
fn of_config_map(file: &str, data: Node<'_, '_>, key: Option<&str>) -> Result<Config, Problem> {
    let entries = data.entries().ok_or_else(|| data.problem("`data` takes keys with values"))?;
    let names = || entries.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>().join(", ");
    let chosen = match (key, &entries[..]) {
        (Some(key), _) => entries.iter().find(|(name, ..)| name == key),
        (None, [only]) => Some(only),
        (None, _) => {
            return Err(data
                .problem(format!("has several configurations ({}): choose one with --config-key", names())));
        }
    };
    let (_, at, value) = chosen.ok_or_else(|| {
        data.problem(format!("has no configuration `{}`; it has {}", key.unwrap_or_default(), names()))
    })?;
    let text = value.string("a configuration in a ConfigMap")?;
    let in_file = |position| position_in(file, &text, at.line(), position);
    let mut config = parse(&text, None).map_err(|Problem { line, column, text }| {
        let (line, column) = in_file((line, column));
        Problem { line, column, text }
    })?;
    config.positions().for_each(|position| *position = in_file(*position));
    Ok(config)
}

/// Translates a position in a text that is embedded in a file, below its line `above` and indented.
fn position_in(file: &str, text: &str, above: usize, (line, column): Position) -> Position {
    let lines = file.lines().nth(above + line - 1).zip(text.lines().nth(line - 1));
    let indent = lines.and_then(|(outer, inner)| Some(outer.strip_suffix(inner)?.chars().count()));
    (above + line, column + indent.unwrap_or(0))
}

fn config(root: Node<'_, '_>) -> Result<Config, Problem> {
    let mut keys = root.keys("a configuration")?;
    if let Some(version) = keys.take("version").filter(|version| version.text().as_deref() != Some("v1")) {
        return Err(version.problem("version takes v1"));
    }
    let mut config = Config::default();
    if let Some(flags) = keys.take("flags") {
        read_flags(flags, &mut config)?;
    }
    config.sharing = keys.take("sharing").map(sharing::parse).transpose()?.flatten();
    for key in OF_THE_PLUGIN {
        config.ignored.extend(keys.take(key).map(|_| key.to_owned()));
    }
    if let Some(own) = keys.take("gpu-coord") {
        own::parse(own, &mut config)?;
    }
    end(keys)?;
    Ok(config)
}

fn read_flags(flags: Node<'_, '_>, config: &mut Config) -> Result<(), Problem> {
    for (name, key, value) in flags.entries().ok_or_else(|| flags.problem("flags takes keys with values"))? {
        match name.as_str() {
            "migStrategy" if value.is_null() => {}
            "migStrategy" => config.mig = Some(mig_strategy(value)?),
            "failOnInitError"
            | "mpsRoot"
            | "nvidiaDriverRoot"
            | "nvidiaDevRoot"
            | "gdsEnabled"
            | "mofedEnabled"
            | "gdrcopyEnabled"
            | "useNodeFeatureAPI"
            | "deviceDiscoveryStrategy"
            | "plugin"
            | "gfd" => {
                config.ignored.push(format!("flags.{name}"));
            }
            _ => return Err(unknown(&name, key, &["migStrategy"])),
        }
    }
    Ok(())
}

fn mig_strategy(node: Node<'_, '_>) -> Result<MigStrategy, Problem> {
    match node.text().as_deref() {
        Some("none") => Ok(MigStrategy::None),
        Some("single") => Ok(MigStrategy::Single),
        Some("mixed") => Ok(MigStrategy::Mixed),
        _ => Err(node.problem("migStrategy takes none, single or mixed")),
    }
}

/// A resource name as the plugin accepts it: of characters that a domain may have. Without a domain it is NVIDIA's.
fn resource_name(text: &str, node: Node<'_, '_>) -> Result<String, Problem> {
    let name = if text.contains('/') { text.to_owned() } else { format!("nvidia.com/{text}") };
    let is_of_domain = |part: &str| {
        let is_fit =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        part.bytes().all(is_fit)
            && !part.is_empty()
            && !part.starts_with(['-', '.'])
            && !part.ends_with(['-', '.'])
    };
    if name.split('/').count() == 2 && name.split('/').all(is_of_domain) && name.len() <= LONGEST_NAME {
        return Ok(name);
    }
    Err(node.problem(format!(
        "`{text}` is not a resource name such as nvidia.com/gpu: lower-case letters, digits, `-` and `.`, at most \
         {LONGEST_NAME} of them"
    )))
}

fn unknown(name: &str, key: Node<'_, '_>, known: &[&str]) -> Problem {
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are {}", known.join(", ")),
    };
    key.problem(format!("`{name}` is not a key here; {hint}"))
}

/// Fails if a key is left.
fn end(keys: Keys<'_, '_>) -> Result<(), Problem> {
    keys.end(|name, known| nearest(name, known.iter().copied()))
}
