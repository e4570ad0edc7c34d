//! A Kubernetes manifest of any kind: pods and Flink configurations are found wherever they are.
//!
//! A pod is any map with `containers`, so resources that contain a pod (a Deployment, a CronJob, a List, the
//! FlinkDeployment of Flink's operator, a resource of any other operator) need no rules of their own.

use super::{Finding, Rules, flink, legacy, pod, settings, yaml};
use crate::config::yaml::{Entry, Node, Problem, get};

/// The keys of a ConfigMap under which Flink finds its configuration.
const LEGACY: &str = "flink-conf.yaml";
const STANDARD: &str = "config.yaml";

pub(super) fn check(root: Node<'_, '_>, rules: &Rules<'_>) -> Result<Vec<Finding>, Problem> {
    let mut findings = Vec::new();
    walk(root, "", rules, &mut findings)?;
    Ok(findings)
}

/// `within`: the object that contains the node, as messages name it.
fn walk(
    node: Node<'_, '_>,
    within: &str,
    rules: &Rules<'_>,
    findings: &mut Vec<Finding>,
) -> Result<(), Problem> {
    if let Some(items) = node.sequence() {
        return items.into_iter().try_for_each(|item| walk(item, within, rules, findings));
    }
    if node.is_null() || node.text().is_some() {
        return Ok(());
    }
    let entries =
        node.merged().ok_or_else(|| node.problem("has a key that is not text, which means nothing here"))?;
    let within = object(&entries).unwrap_or_else(|| within.to_owned());
    findings.extend(pod::check(&entries, &within, rules)?);
    if within.starts_with("ConfigMap") {
        findings.extend(config_map(&entries, rules)?);
    }
    for (name, _, value) in &entries {
        if name == "flinkConfiguration" && value.entries().is_some() {
            let settings = settings::nested(*value)?;
            findings.extend(flink::check(&settings, flink::Deployment::Operator, rules));
        }
        walk(*value, &within, rules, findings)?;
    }
    Ok(())
}

/// The kind and name of a map that is an object: `Deployment trainer`.
fn object(entries: &[Entry<'_, '_>]) -> Option<String> {
    let kind = get(entries, "kind").and_then(Node::text)?;
    let name = get(entries, "metadata").and_then(|metadata| metadata.get("name")).and_then(Node::text);
    Some(format!("{kind} {}", name.unwrap_or_else(|| "without a name".to_owned())))
}

/// A standalone cluster on Kubernetes has its configuration in a ConfigMap.
fn config_map(entries: &[Entry<'_, '_>], rules: &Rules<'_>) -> Result<Vec<Finding>, Problem> {
    let Some(data) = get(entries, "data").and_then(Node::entries) else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    for (name, key, value) in data {
        let Some(text) = value.text() else { continue };
        // The lines of a block begin one below its key.
        let above = if value.line() > key.line() { key.line() } else { key.line() - 1 };
        let found = match name.as_str() {
            LEGACY => legacy(&text, rules),
            STANDARD => {
                yaml(&text, rules).map_err(|problem| Problem { line: problem.line + above, ..problem })?
            }
            _ => continue,
        };
        findings.extend(found.into_iter().map(|it| Finding { line: it.line + above, ..it }));
    }
    Ok(findings)
}
