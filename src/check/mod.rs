//! What is wrong with a configuration before it is deployed: pure rules over texts.
//!
//! A file is read as what it is:
//!
//! * `flink-conf*`: lines as Flink 1.x reads them (`settings`), which is no YAML.
//! * A YAML document with `apiVersion` or `kind`: a Kubernetes manifest (`kubernetes`), of whatever kind; what is
//!   looked for are pods, Flink configurations of its operator, and ConfigMaps that hold one.
//! * Any other YAML document: `config.yaml` of Flink (`flink`, `keys`, `discovery`).
//!
//! What is found is an answer, and so goes to stdout: `FILE:LINE: TEXT`, and before it `OVER=NAME=COUNT` if it is more
//! than one share of what is shared. `OK` alone says that nothing was found in any of the files. A file that cannot
//! be understood is no answer, but an error.

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

/// What a text is held against.
pub(crate) struct Rules<'a> {
    /// What our own configuration says: of what is shared, and of our options.
    pub(crate) config: Option<&'a Config>,
    /// What our own command line says of words as Flink would call it with them.
    pub(crate) refusal: &'a dyn Fn(&[&str]) -> Option<String>,
    /// The host that a text is for.
    pub(crate) host: Option<HostRules<'a>>,
}

pub(crate) struct HostRules<'a> {
    /// How many units there are, or why a list names none.
    pub(crate) offered: &'a dyn Fn(&Offered<'_>) -> Result<usize, String>,
    /// The executable that a path leads to, or what is wrong with it.
    pub(crate) executable: &'a dyn Fn(&Path) -> Result<PathBuf, String>,
}

/// What units are asked for, as the options have it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offered<'a> {
    /// `None`: the one that is given if nothing is said.
    pub(crate) resource: Option<&'a str>,
    pub(crate) devices: Option<&'a str>,
    pub(crate) exclude: Option<&'a str>,
}

impl Rules<'_> {
    fn sharing(&self) -> Option<&Sharing> {
        self.config?.sharing.as_ref()
    }

    /// Whether an owner is given at most one unit of a resource.
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

    /// More than one share. `who` asks for them.
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
    // An alias says again what its anchor said.
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
            root.problem("is neither a configuration of Flink nor a Kubernetes manifest: keys with values")
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

/// As they are printed.
pub(crate) fn lines(file: &Path, findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let over = finding.over.as_ref().map(|(name, count)| format!("OVER={name}={count}"));
        let place = format!("{}:{}: {}", file.display(), finding.line, finding.text);
        // A name in a manifest, and that of the file, can hold a line end and what a terminal obeys.
        over.into_iter().chain([place]).map(|line| plain::escaped(&line) + "\n").collect::<String>()
    };
    findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
