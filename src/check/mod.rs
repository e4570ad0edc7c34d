//! What is wrong with a configuration before it is deployed: pure rules over texts.
//!
//! How a file is read:
//!
//! * `flink-conf*`: line by line, as Flink 1.x does (`settings`). This is not YAML.
//! * A YAML document with `apiVersion` or `kind`: a Kubernetes manifest (`kubernetes`) of any kind. It is searched for
//!   pods, Flink configurations of Flink's operator, and ConfigMaps that contain one.
//! * Any other YAML document: Flink's `config.yaml` (`flink`, `keys`, `discovery`).
//!
//! Findings are the answer, and so go to stdout: `FILE:LINE: TEXT`, preceded by `OVER=NAME=COUNT` if more than one share
//! is requested. A lone `OK` says that nothing was found in any file. A file that cannot be understood is an error.

mod discovery;
mod flink;
mod keys;
mod kubernetes;
mod names;
mod pod;
mod quantity;
mod settings;

use std::path::{Path, PathBuf};

use crate::config::yaml::{Node, Problem, documents};
use crate::config::{Config, Sharing};
use crate::plain;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    line: usize,
    text: String,
    /// More than one share of a resource, and how many.
    over: Option<(String, u128)>,
}

/// What a text is checked against.
pub(crate) struct Rules<'a> {
    /// Our own configuration: what is shared, and our options.
    pub(crate) config: Option<&'a Config>,
    /// Why our own command line would refuse these words, if Flink called it with them.
    pub(crate) refusal: &'a dyn Fn(&[&str]) -> Option<String>,
    /// The host that a text is for.
    pub(crate) host: Option<HostRules<'a>>,
}

pub(crate) struct HostRules<'a> {
    /// How many such units there are, or what is wrong with a list.
    pub(crate) offered: &'a dyn Fn(&Offered<'_>) -> Result<usize, String>,
    /// The executable that a path leads to, or what is wrong with it.
    pub(crate) executable: &'a dyn Fn(&Path) -> Result<PathBuf, String>,
}

/// Which units are requested, as the options say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offered<'a> {
    /// `None`: the default resource.
    pub(crate) resource: Option<&'a str>,
    pub(crate) devices: Option<&'a str>,
    pub(crate) exclude: Option<&'a str>,
}

impl Rules<'_> {
    fn sharing(&self) -> Option<&Sharing> {
        self.config?.sharing.as_ref()
    }

    /// Whether an owner gets at most one unit of a resource.
    fn is_single(&self, resource: &str) -> bool {
        let sharing = self.sharing().filter(|sharing| sharing.fails_requests_greater_than_one);
        let mut shared = sharing.iter().flat_map(|sharing| &sharing.resources);
        resource.ends_with(".shared") || shared.any(|it| it.rename.as_deref().unwrap_or(&it.name) == resource)
    }

    /// The names that the configuration gives.
    fn known(&self) -> Vec<&str> {
        let resources = self.sharing().into_iter().flat_map(|sharing| &sharing.resources);
        resources.flat_map(|it| [Some(it.name.as_str()), it.rename.as_deref()]).flatten().collect()
    }

    /// The finding that `who` asks for more than one share, if it does.
    fn over(&self, line: usize, who: &str, resource: &str, amount: u128) -> Option<Finding> {
        (amount > 1 && self.is_single(resource)).then(|| Finding {
            line,
            text: format!(
                "{who} asks for {amount} of {resource}, of which at most 1 is given: a second share gives no more \
                 of a device, which its owners take in turns; ask for 1"
            ),
            over: Some((resource.to_owned(), amount)),
        })
    }
}

impl Finding {
    fn new(line: usize, text: impl Into<String>) -> Finding {
        Finding { line, text: text.into(), over: None }
    }
}

/// What is wrong with a file of this name, in the order of its lines.
pub(crate) fn check(file: &Path, text: &str, rules: &Rules<'_>) -> Result<Vec<Finding>, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut findings = if is_legacy(&name) { legacy(text, rules) } else { yaml(text, rules)? };
    findings.sort_by_key(|finding| finding.line);
    // An alias repeats the findings of its anchor.
    findings.dedup();
    Ok(findings)
}

fn is_legacy(name: &str) -> bool {
    name.starts_with("flink-conf")
}

fn legacy(text: &str, rules: &Rules<'_>) -> Vec<Finding> {
    let (settings, mut findings) = settings::legacy(text);
    findings.extend(flink::check(&settings, flink::Deployment::Unknown, rules));
    findings
}

fn yaml(text: &str, rules: &Rules<'_>) -> Result<Vec<Finding>, Problem> {
    let mut findings = Vec::new();
    for document in &documents(text)? {
        let root = Node::of(document);
        if root.is_null() {
            continue;
        }
        let entries = root.entries().ok_or_else(|| {
            root.problem(
                "is neither a Flink configuration nor a Kubernetes manifest, which are keys with values",
            )
        })?;
        if entries.iter().any(|(name, ..)| name == "kind" || name == "apiVersion") {
            findings.extend(kubernetes::check(root, rules)?);
        } else {
            let settings = settings::nested(root)?;
            findings.extend(flink::check(&settings, flink::Deployment::Unknown, rules));
        }
    }
    Ok(findings)
}

/// The findings as they are printed.
pub(crate) fn lines(file: &Path, findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let over = finding.over.as_ref().map(|(name, count)| format!("OVER={name}={count}"));
        let place = format!("{}:{}: {}", file.display(), finding.line, finding.text);
        // A name in a manifest, or of a file, can contain newlines and control characters.
        over.into_iter().chain([place]).map(|line| plain::escaped(&line) + "\n").collect::<String>()
    };
    findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
