//! The containers of a pod and the resources that they request.
//!
//! A device plugin's resources cannot be overcommitted: a limit is required, a request has to equal it, and both are
//! whole numbers. Containers run at the same time, each with resources of its own. Init containers run before them, one
//! after the other, except those that stay (`restartPolicy: Always`).
//!
//! Source: kubernetes.io, "Schedule GPUs", "Init Containers: Resource sharing within containers".

use std::collections::BTreeMap;

use super::quantity::{self, Mistake};
use super::{Finding, Offered, Rules, names};
use crate::config::yaml::{Entry, Node, Problem, get};
use crate::nearest::nearest;

/// The keys that list containers, and the name of such a container in messages.
const LISTS: [(&str, &str); 3] = [
    ("initContainers", "init container"),
    ("containers", "container"),
    ("ephemeralContainers", "ephemeral container"),
];
const PARTS: [&str; 3] = ["limits", "requests", "claims"];

/// An amount as it is written.
struct Written {
    text: String,
    line: usize,
}

/// What one container requests of one resource.
struct Demand {
    resource: String,
    amount: u128,
    line: usize,
    /// Whether it is held while the containers run, and not only before.
    stays: bool,
}

/// `entries`: those of a map that may be a pod.
pub(super) fn check(
    entries: &[Entry<'_, '_>],
    within: &str,
    rules: &Rules<'_>,
) -> Result<Vec<Finding>, Problem> {
    let (mut findings, mut requests) = (Vec::new(), Vec::new());
    for (list, what) in LISTS {
        let items = get(entries, list).and_then(Node::sequence).unwrap_or_default();
        for (at, item) in items.into_iter().enumerate() {
            let name = item.get("name").and_then(Node::text).unwrap_or_else(|| (at + 1).to_string());
            let restarts = item.get("restartPolicy").and_then(Node::text);
            let mut container = Container {
                who: format!("{within}, {what} `{name}`"),
                stays: list == "containers" || restarts.as_deref() == Some("Always"),
                rules,
                findings: Vec::new(),
            };
            requests.extend(container.check(item)?);
            findings.extend(container.findings);
        }
    }
    findings.extend(too_many(&requests, within, rules));
    Ok(findings)
}

struct Container<'a> {
    who: String,
    stays: bool,
    rules: &'a Rules<'a>,
    findings: Vec<Finding>,
}

impl Container<'_> {
    fn say(&mut self, line: usize, text: impl AsRef<str>) {
        self.findings.push(Finding::new(line, format!("{}: {}", self.who, text.as_ref())));
    }

    fn check(&mut self, container: Node<'_, '_>) -> Result<Vec<Demand>, Problem> {
        let entries = container.merged().unwrap_or_default();
        let Some(resources) = get(&entries, "resources").filter(|node| !node.is_null()) else {
            return Ok(Vec::new());
        };
        let problem = || resources.problem("resources takes `limits` and `requests`");
        let parts = resources.merged().ok_or_else(problem)?;
        for (name, key, _) in parts.iter().filter(|(name, ..)| !PARTS.contains(&name.as_str())) {
            self.misplaced(name, key.line());
        }
        let limits = amounts(get(&parts, "limits"), "limits")?;
        let requests = amounts(get(&parts, "requests"), "requests")?;
        let mut asked: Vec<&String> = limits.keys().collect();
        asked.extend(requests.keys().filter(|name| !limits.contains_key(*name)));
        let asked =
            asked.into_iter().filter_map(|name| self.resource(name, limits.get(name), requests.get(name)));
        Ok(asked.collect())
    }

    fn misplaced(&mut self, name: &str, line: usize) {
        if names::is_extended(name) {
            self.say(
                line,
                format!("`{name}` lies in `resources` itself, where nothing is read; put it below `limits`"),
            );
        } else if let Some(near) = nearest(name, PARTS.into_iter()) {
            self.say(line, format!("`{name}` is not part of `resources`; did you mean `{near}`?"));
        }
    }

    /// At least one of limit and request must be given; the limit decides.
    fn resource(&mut self, name: &str, limit: Option<&Written>, request: Option<&Written>) -> Option<Demand> {
        let asked = limit.or(request)?;
        let mistake = names::mistake(name, &self.rules.known());
        let is_meant = mistake.is_none();
        if let Some(mistake) = mistake {
            self.say(asked.line, mistake);
        }
        if !names::is_extended(name) {
            return None;
        }
        let amount = self.amount(name, asked);
        match (limit, request) {
            (None, Some(request)) => {
                let text =
                    format!("{name} is in `requests` alone, which Kubernetes refuses; put it below `limits`");
                self.say(request.line, text);
            }
            (Some(limit), Some(request)) => self.equal(name, limit, request),
            _ => {}
        }
        let amount = amount.filter(|_| is_meant)?;
        self.findings.extend(self.rules.over(asked.line, &self.who, name, amount));
        Some(Demand { resource: name.to_owned(), amount, line: asked.line, stays: self.stays })
    }

    fn equal(&mut self, name: &str, limit: &Written, request: &Written) {
        if limit.text == request.text {
            return;
        }
        let (Some(requested), Ok(limited)) = (self.amount(name, request), quantity::whole(&limit.text))
        else {
            return;
        };
        if requested != limited {
            let (limit, text) = (&limit.text, &request.text);
            let text = format!(
                "the request for {name} is {text} and its limit {limit}, and Kubernetes wants them equal"
            );
            self.say(request.line, text);
        }
    }

    fn amount(&mut self, name: &str, asked: &Written) -> Option<u128> {
        let Written { text, line } = asked;
        match quantity::whole(text) {
            Ok(amount) => return Some(amount),
            Err(Mistake::NotWhole) => {
                self.say(*line, format!("{text} of {name} cannot be had: devices are given whole"));
            }
            Err(Mistake::NoQuantity) => self.say(*line, format!("`{text}` is not an amount of {name}")),
        }
        None
    }
}

/// `part` is `limits` or `requests`.
fn amounts(part: Option<Node<'_, '_>>, what: &str) -> Result<BTreeMap<String, Written>, Problem> {
    let Some(part) = part.filter(|part| !part.is_null()) else { return Ok(BTreeMap::new()) };
    let entries =
        part.merged().ok_or_else(|| part.problem(format!("{what} takes resources with amounts")))?;
    let amount = |(name, key, value): Entry<'_, '_>| {
        let text = value.string(&name)?;
        Ok((name, Written { text, line: key.line() }))
    };
    entries.into_iter().map(amount).collect()
}

/// What the pod needs at the same time, but this host does not have.
fn too_many(requests: &[Demand], within: &str, rules: &Rules<'_>) -> Vec<Finding> {
    let Some(host) = &rules.host else { return Vec::new() };
    let mut needs: BTreeMap<&str, (u128, u128, usize)> = BTreeMap::new();
    let known = rules.known();
    let is_ours = |name: &str| names::is_device(name) || known.contains(&name);
    for Demand { resource, amount, line, stays } in requests.iter().filter(|it| is_ours(&it.resource)) {
        let (staying, at_start, _) = needs.entry(resource).or_insert((0, 0, *line));
        if *stays {
            *staying = staying.saturating_add(*amount);
        } else {
            *at_start = (*at_start).max(*amount);
        }
    }
    let over = needs.into_iter().filter_map(|(resource, (staying, at_start, line))| {
        let asked = Offered { resource: Some(resource), ..Offered::default() };
        let (amount, offered) = (staying.max(at_start), (host.offered)(&asked).unwrap_or(0));
        let text = format!("{within}: a pod needs {amount} of {resource}, and this host has {offered}");
        (amount > offered as u128).then(|| Finding::new(line, text))
    });
    over.collect()
}
