//! The quotas of the configuration: whose they are.

use std::collections::BTreeSet;

use super::{Context, Findings};
use crate::commands::quota::nobody;
use crate::config::Whose;

const CHECK: &str = "quotas";

pub(super) fn look(context: &Context<'_>, findings: &mut Findings) {
    let quotas = context.config.map(|config| &config.quotas[..]).unwrap_or_default();
    if quotas.is_empty() {
        return;
    }
    let accounts = context.host.accounts();
    let user = |whose: &Whose| match whose {
        Whose::User(name) => Some(name.clone()).filter(|name| accounts.uid(name).is_none()),
        Whose::Namespace(_) => None,
    };
    let unknown: BTreeSet<String> = quotas.iter().filter_map(|quota| user(&quota.whose)).collect();
    unknown.iter().for_each(|name| findings.fail(CHECK, nobody(name)));
    if unknown.is_empty() {
        findings.ok(CHECK, "everybody who has a quota is known");
    }
}
