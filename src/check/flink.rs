//! The external resources of a Flink configuration.
//!
//! Flink reports none of these mistakes where anybody looks: the TaskManager starts and advertises its GPUs, but its jobs
//! see none, or the same ones as those of the next TaskManager.
//!
//! Source: Flink, `ExternalResourceUtils`, `ExternalResourceOptions`, and its page "External Resources".

use std::collections::{BTreeMap, BTreeSet};

use super::settings::{Setting, Value};
use super::{Finding, Rules, discovery, names};
use crate::nearest::nearest;

pub(super) const LIST: &str = "external-resources";
pub(super) const PREFIX: &str = "external-resource";
const FACTORY: &str = "org.apache.flink.externalresource.gpu.GPUDriverFactory";
pub(super) const PATH: &str = "param.discovery-script.path";
pub(super) const ARGS: &str = "param.discovery-script.args";

/// What starts the TaskManagers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deployment {
    /// Not known: most likely a standalone cluster.
    Unknown,
    /// The Kubernetes operator: each TaskManager is a pod, which sees only its own GPUs.
    Operator,
}

/// All settings of a configuration, checked together.
pub(super) struct Flink<'a> {
    pub(super) settings: &'a [Setting],
    /// If a key is set twice, the last setting counts.
    by_key: BTreeMap<&'a str, &'a Setting>,
    deployment: Deployment,
    rules: &'a Rules<'a>,
    findings: Vec<Finding>,
}

pub(super) fn check(settings: &[Setting], deployment: Deployment, rules: &Rules<'_>) -> Vec<Finding> {
    let by_key = settings.iter().map(|setting| (setting.key.as_str(), setting)).collect();
    let mut flink = Flink { settings, by_key, deployment, rules, findings: Vec::new() };
    let (line, names) = flink.names();
    flink.check_keys(&names);
    for name in &names {
        flink.resource(name, line);
    }
    flink.findings
}

impl<'a> Flink<'a> {
    pub(super) fn say(&mut self, line: usize, text: impl Into<String>) {
        self.findings.push(Finding::new(line, text));
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Setting> {
        self.by_key.get(key).copied()
    }

    fn of(&self, name: &str, option: &str) -> Option<&'a Setting> {
        self.get(&format!("{PREFIX}.{name}.{option}"))
    }

    /// The resources that are enabled, and the line that lists them.
    fn names(&mut self) -> (usize, BTreeSet<String>) {
        let Some(list) = self.get(LIST) else { return (1, BTreeSet::new()) };
        let items = match &list.value {
            Value::List(items) => items.clone(),
            Value::Text(text) => text.split(';').map(str::to_owned).collect(),
        };
        let mut names = BTreeSet::new();
        for name in items.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
            if name.contains(',') {
                self.say(list.line, format!("{LIST} is divided at `;`, so that `{name}` is one resource"));
            } else if name != "none" {
                names.insert(name.to_owned());
            }
        }
        (list.line, names)
    }

    /// Checks an enabled resource; `listed`: the line that lists it.
    fn resource(&mut self, name: &str, listed: usize) {
        let amount = self.amount(name, listed);
        self.factory(name, listed);
        self.config_key(name, amount, listed);
        if self.is_gpu(name)
            && let Some((amount, line)) = amount
        {
            self.script(name, amount, line);
        }
    }

    fn amount(&mut self, name: &str, listed: usize) -> Option<(u128, usize)> {
        let Some(setting) = self.of(name, "amount") else {
            self.say(listed, format!("`{PREFIX}.{name}.amount` is missing: Flink passes over `{name}`"));
            return None;
        };
        let text = setting.value.text();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that does not fit into a `u128` is more than Flink accepts, too.
        let amount = is_number.then(|| text.parse().unwrap_or(u128::MAX)).filter(|amount| *amount > 0);
        if amount.is_none() {
            self.say(
                setting.line,
                format!("the amount of `{name}` cannot be `{text}`: Flink takes a whole number above 0"),
            );
        }
        amount.map(|amount| (amount, setting.line))
    }

    fn factory(&mut self, name: &str, listed: usize) {
        let Some(setting) = self.of(name, "driver-factory.class") else {
            let key = format!("{PREFIX}.{name}.driver-factory.class");
            let hint = if self.is_gpu(name) { format!("; for GPUs it is {FACTORY}") } else { String::new() };
            return self.say(
                listed,
                format!("`{key}` is missing: no driver is asked, and jobs are told of no {name}{hint}"),
            );
        };
        let class = setting.value.text();
        if class != FACTORY && is_near_factory(&class) {
            self.say(
                setting.line,
                format!("`{class}` is not a driver factory of Flink; did you mean `{FACTORY}`?"),
            );
        }
    }

    /// Whether the driver is Flink's GPU driver, or is meant to be.
    pub(super) fn is_gpu(&self, name: &str) -> bool {
        match self.of(name, "driver-factory.class") {
            Some(setting) => is_near_factory(&setting.value.text()),
            None => {
                name.to_lowercase().contains("gpu") || self.of(name, PATH).or(self.of(name, ARGS)).is_some()
            }
        }
    }

    fn config_key(&mut self, name: &str, amount: Option<(u128, usize)>, listed: usize) {
        let Some(setting) = self.of(name, "kubernetes.config-key") else {
            if self.deployment == Deployment::Operator {
                let key = format!("{PREFIX}.{name}.kubernetes.config-key");
                self.say(
                    listed,
                    format!("`{key}` is missing: the pods of the TaskManagers ask for no {name}"),
                );
            }
            return;
        };
        let resource = setting.value.text();
        if let Some(mistake) = names::mistake(&resource, &self.rules.known()) {
            self.say(setting.line, mistake);
        }
        let Some((amount, line)) = amount else { return };
        self.findings.extend(self.rules.over(line, &format!("`{name}`"), &resource, amount));
    }

    fn script(&mut self, name: &str, amount: u128, line: usize) {
        let path = self.of(name, PATH);
        let script = discovery::Script {
            key: format!("{PREFIX}.{name}.{PATH}"),
            name,
            amount: (amount, line),
            path: path.map(|setting| (setting.value.text(), setting.line)),
            args: self.of(name, ARGS).map(|setting| (setting.value.text(), setting.line)),
            sees_the_host: self.deployment == Deployment::Unknown,
            has_variable: self.settings.iter().any(|setting| setting.key.contains(discovery::COORDINATES)),
        };
        self.findings.extend(script.check(self.rules));
    }
}

pub(super) fn is_near(word: &str, other: &str) -> bool {
    nearest(word, [other].into_iter()).is_some()
}

/// The factory of another resource (`...fpga.FPGADriverFactory`) is similar to that of GPUs, but not a mistake.
fn is_near_factory(class: &str) -> bool {
    let lower = class.to_lowercase();
    let is_bare = !class.contains('.') && is_near(class, "GPUDriverFactory");
    class == FACTORY || (lower.contains("gpu") && (is_bare || is_near(class, FACTORY)))
}
