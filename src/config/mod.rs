//! The configuration file: pure.
//!
//! Its format is that of NVIDIA's Kubernetes device plugin, version v1, so that one file serves both: `flags.migStrategy`
//! and `sharing` mean the same here, what else the plugin knows means nothing here and is only named, and what it
//! does not know is an error. What is ours alone lies below the key `gpu-coord`. Without a version it is v1, as it is
//! to the plugin.
//!
//! Source of the format: README of the device plugin, "Configuration", "Shared Access to GPUs".

mod own;
mod sharing;
pub(crate) mod yaml;

use std::path::PathBuf;

use crate::nearest::nearest;
use yaml::{Keys, Node, Problem, documents};

pub(crate) use own::{Preset, Quota, Whose};
pub(crate) use sharing::{Devices, SharedResource, Sharing, Way};

/// What of MIG instances is offered, and under which name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MigStrategy {
    /// No instance, and no card that is divided.
    None,
    /// Instances as whole devices, if all are alike.
    Single,
    /// Instances by their profiles.
    Mixed,
}

/// Where the MPS control daemon is reached, and logs.
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
    /// `None`: the file does not say.
    pub(crate) mig: Option<MigStrategy>,
    pub(crate) sharing: Option<Sharing>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) mps: MpsDirectories,
    pub(crate) options: Vec<Preset>,
    /// Keys of the plugin that mean nothing here.
    pub(crate) ignored: Vec<String>,
}

/// Of a resource's name, with its domain.
const LONGEST_NAME: usize = 63;
/// Keys of the plugin that say how it itself works.
const OF_THE_PLUGIN: [&str; 3] = ["resources", "imex", "health"];

/// `key`: which of the configurations, where the text is a ConfigMap of several.
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
        (Some(data), key) => of_config_map(data, key),
        (None, Some(key)) => Err(root.problem(format!(
            "is no ConfigMap, so that there is no `{key}` to choose; leave --config-key out"
        ))),
        (None, None) => config(root),
    }
}

/// Each value is the text of a configuration of its own.
fn of_config_map(data: Node<'_, '_>, key: Option<&str>) -> Result<Config, Problem> {
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
    // Its first line is the one below its key.
    let mut config = parse(&text, None)
        .map_err(|problem| Problem { line: problem.line + at.line(), ..problem })?;
    config.options.iter_mut().for_each(|option| option.place.0 += at.line());
    Ok(config)
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

/// The name of a resource as the plugin takes it: of letters that a domain may have, and without a domain NVIDIA's.
fn resource_name(text: &str, node: Node<'_, '_>) -> Result<String, Problem> {
    let name = if text.contains('/') { text.to_owned() } else { format!("nvidia.com/{text}") };
    let is_of_domain = |part: &str| {
        let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        part.bytes().all(is_fit) && !part.is_empty() && !part.starts_with(['-', '.']) && !part.ends_with(['-', '.'])
    };
    if name.split('/').count() == 2 && name.split('/').all(is_of_domain) && name.len() <= LONGEST_NAME {
        return Ok(name);
    }
    Err(node.problem(format!(
        "`{text}` is no name of a resource, such as nvidia.com/gpu: lower-case letters, digits, `-` and `.`, at most \
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

/// Fails if a key was not taken.
fn end(keys: Keys<'_, '_>) -> Result<(), Problem> {
    keys.end(|name, known| nearest(name, known.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "\
version: v1
flags:
  migStrategy: mixed
  failOnInitError: true
  plugin: {passDeviceSpecs: false, deviceListStrategy: envvar}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: 4
      devices: [0, GPU-1, 0:1]
    - {name: mig-1g.10gb, replicas: 2, rename: small, devices: 3}
imex: {}
gpu-coord:
  quotas:
    team-a: {nvidia.com/gpu.shared: 2}
    user:flink: {nvidia.com/gpu: 1, nvidia.com/small: 0}
  options: {deadline: 5, skip-busy: true}
  mps: {pipe-directory: /run/mps}
";

    #[test]
    fn a_configuration_of_the_plugin_is_one_of_ours() {
        let config = parse(FULL, None).unwrap();
        assert_eq!(config.mig, Some(MigStrategy::Mixed));
        let sharing = config.sharing.unwrap();
        assert_eq!((sharing.way, sharing.fails_requests_greater_than_one), (Way::TimeSlicing, true));
        let shown: Vec<_> = sharing
            .resources
            .iter()
            .map(|it| (it.name.as_str(), it.replicas, it.rename.as_deref()))
            .collect();
        let gpus = ("nvidia.com/gpu", 4, Some("nvidia.com/gpu.shared"));
        assert_eq!(shown, [gpus, ("nvidia.com/mig-1g.10gb", 2, Some("nvidia.com/small"))]);
        let list = ["0", "GPU-1", "0:1"].map(str::to_owned).to_vec();
        assert_eq!(
            (&sharing.resources[0].devices, &sharing.resources[1].devices),
            (&Devices::List(list), &Devices::Count(3))
        );
        assert_eq!(config.ignored, ["flags.failOnInitError", "flags.plugin", "imex"]);
        let user = Whose::User("flink".to_owned());
        let quota = |whose: &Whose, resource: &str, limit| Quota {
            whose: whose.clone(),
            resource: resource.to_owned(),
            limit,
        };
        let team = quota(&Whose::Namespace("team-a".to_owned()), "nvidia.com/gpu.shared", 2);
        assert_eq!(
            config.quotas,
            [team, quota(&user, "nvidia.com/gpu", 1), quota(&user, "nvidia.com/small", 0)]
        );
        let option = |name: &str, value: &str, place| Preset { name: name.to_owned(), value: value.to_owned(), place };
        assert_eq!(config.options, [option("deadline", "5", (20, 13)), option("skip-busy", "true", (20, 26))]);
        assert_eq!((config.mps.pipe, config.mps.log), ("/run/mps".into(), "/var/log/nvidia-mps".into()));
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_is_wrong_is_told_with_its_place() {
        for (case, text, place, says) in [
            ("no YAML",        "a: [1",                                           (2, 1),  ""),
            ("a list",         "- a",                                             (1, 1),  "a configuration takes keys with values"),
            ("version 2",      "version: v2",                                     (1, 10), "version takes v1"),
            ("a key misspelt", "version: v1\nsharring: {}",                       (2, 1),  "`sharring` is not a key here; did you mean `sharing`?"),
            ("a flag",         "version: v1\nflags:\n  migStrategie: none",       (3, 3),  "`migStrategie` is not a key here; did you mean `migStrategy`?"),
            ("a strategy",     "version: v1\nflags: {migStrategy: all}",          (2, 22), "migStrategy takes none, single or mixed"),
            ("both ways",      "version: v1\nsharing: {timeSlicing: {resources: []}, mps: {resources: []}}", (2, 46), "timeSlicing and mps exclude each other"),
            ("no replicas",    "version: v1\nsharing: {mps: {resources: [{name: gpu}]}}", (2, 29), "`replicas` of nvidia.com/gpu is missing"),
            ("one replica",    "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 1}]}}", (2, 51), "replicas takes a number from 2 to 4096"),
            ("half a one",     "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2.5}]}}", (2, 51), "replicas takes a number from 2 to 4096"),
            ("devices",        "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2, devices: some}]}}", (2, 63), "devices takes `all`, a number of devices, or a list of indexes and UUIDs"),
            ("twice",          "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 3}]}}", (2, 28), "`nvidia.com/gpu` is shared twice"),
            ("a quota",        "version: v1\ngpu-coord: {quotas: {a: {nvidia.com/gpu: -1}}}", (2, 42), "the limit of nvidia.com/gpu takes a whole number"),
            ("own key",        "version: v1\ngpu-coord: {quota: {}}",             (2, 13), "`quota` is not a key here; did you mean `quotas`?"),
            ("two documents",  "version: v1\n---\nversion: v1",                   (3, 1),  "a configuration is one document, and here begins another"),
            ("a key twice",    "version: v1\nversion: v1",                        (2, 1),  ""),
        ] {
            let problem = parse(text, None).unwrap_err();
            assert_eq!((problem.line, problem.column), place, "{case}: {problem:?}");
            assert!(says.is_empty() || problem.text == says, "{case}: {problem:?}");
        }
    }

    #[test]
    fn a_config_map_has_several_of_which_one_is_chosen() {
        let map = "kind: ConfigMap\ndata:\n  a: |-\n    version: v1\n  b: |-\n    version: v1\n    flags:\n      migStrategy: all\n";
        assert_eq!(parse(map, Some("a")), Ok(Config::default()));
        let problem = |key| parse(map, key).unwrap_err();
        assert_eq!(problem(None).text, "has several configurations (a, b): choose one with --config-key");
        assert_eq!(problem(Some("c")).text, "has no configuration `c`; it has a, b");
        assert_eq!(
            (problem(Some("b")).line, problem(Some("b")).text.as_str()),
            (8, "migStrategy takes none, single or mixed")
        );
        let says = "is no ConfigMap, so that there is no `a` to choose; leave --config-key out";
        assert_eq!(parse("version: v1", Some("a")).unwrap_err().text, says);
    }

    #[test]
    fn an_empty_file_says_nothing() {
        for text in ["", "\n", "# nothing\n", "---\n", "version: v1\n"] {
            assert_eq!(parse(text, None), Ok(Config::default()), "{text:?}");
        }
    }
}
