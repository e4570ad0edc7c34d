//! The quotas of the configuration: whether their users exist.

use std::collections::BTreeSet;

use super::{Context, Findings};
use crate::commands::quota::nobody;
use crate::config::Quota;

const CHECK: &str = "quotas";

pub(super) fn look(context: &Context<'_>, findings: &mut Findings) {
    let Some(config) = context.config.filter(|config| !config.quotas.is_empty()) else { return };
    let accounts = context.host.accounts();
    let mut users = BTreeSet::new();
    let is_unknown = |quota: &&Quota| {
        quota.user().is_some_and(|name| accounts.uid(name).is_none() && users.insert(name.to_owned()))
    };
    let unknown: Vec<&Quota> = config.quotas.iter().filter(is_unknown).collect();
    unknown.iter().for_each(|quota| findings.fail(CHECK, nobody(config, quota).chain()));
    if unknown.is_empty() {
        findings.ok(CHECK, "every user with a quota exists");
    }
}
