//! Who holds how much of which resource, compared with the quotas of the configuration.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::assignment::{Assignment, Owner};
use crate::config::{Config, Quota, Whose};
use crate::device::Unit;
use crate::error::Error;
use crate::host::Host;
use crate::host::account::Accounts;
use crate::host::owner;
use crate::policy::{Claim, Holdings, check_quotas};
use crate::sharing::Resources;

/// What is needed to count held units.
pub(super) struct Counting<'a> {
    host: &'a Host,
    resources: &'a Resources,
    holdings: Holdings<'a>,
    accounts: OnceCell<Accounts>,
}

/// Who holds how much of each resource.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// By namespace and resource; without a limit where there is no quota.
    pub(super) namespaces: BTreeMap<(String, String), Sum>,
    /// By user and resource, where there is a quota.
    pub(super) users: BTreeMap<(String, String), Sum>,
}

impl Sums {
    fn of_namespace(&mut self, name: &str, resource: &str) -> &mut Sum {
        self.namespaces.entry((name.to_owned(), resource.to_owned())).or_default()
    }
}

/// The use of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) used: u64,
    pub(super) limit: Option<u64>,
}

impl<'a> Counting<'a> {
    pub(super) fn new(host: &'a Host, resources: &'a Resources, holdings: Holdings<'a>) -> Counting<'a> {
        Counting { host, resources, holdings, accounts: OnceCell::new() }
    }

    /// Fails if the units would exceed a quota that applies to the owner.
    pub(super) fn check(
        &self,
        config: Option<&Config>,
        owner: &Owner,
        namespace: Option<&str>,
        units: &[Unit],
    ) -> Result<(), Error> {
        let Some(config) = config.filter(|config| !config.quotas.is_empty()) else { return Ok(()) };
        let users = self.users(config, owner)?;
        let held = self.claims();
        let mut amounts: BTreeMap<&str, u128> = BTreeMap::new();
        for name in units.iter().filter_map(|unit| self.resources.name(unit)) {
            *amounts.entry(name).or_default() += 1;
        }
        amounts.into_iter().try_for_each(|(resource, amount)| {
            let namespace = self.namespace(namespace, owner.uid);
            let asked = Claim { namespace, uid: owner.uid, resource: resource.to_owned() };
            check_quotas(&config.quotas, &held, &asked, amount, &|name, uid| users.get(name) == Some(&uid))
        })
    }

    /// The users that have quotas. Fails for a user that does not exist, whose quota would limit nobody.
    fn users<'c>(&self, config: &'c Config, owner: &Owner) -> Result<HashMap<&'c str, u32>, Error> {
        let names = config.quotas.iter().filter_map(|quota| Some((quota, quota.user()?)));
        let users = names.map(|(quota, name)| match self.accounts().uid(name) {
            Some(uid) => Ok((name, uid)),
            None => Err(nobody(config, quota)),
        });
        let users: HashMap<&str, u32> = users.collect::<Result<_, _>>()?;
        if !users.is_empty() && owner.uid.is_none() {
            let pid = owner.pid;
            return Err(Error::Owner(format!(
                "the user of pid {pid} cannot be determined, and users have quotas"
            )));
        }
        Ok(users)
    }

    /// What owners hold that may be alive. A unit that was asked for inside `exec` has two holders and counts once.
    fn claims(&self) -> Vec<Claim> {
        let Holdings { record, occupancy, .. } = self.holdings;
        let mut resources: HashMap<usize, &str> = HashMap::new();
        for place in &occupancy.places {
            let Some(name) = self.resources.name(&place.unit) else { continue };
            let mut grants = BTreeSet::new();
            for holder in place.holders.iter().copied().filter(|holder| !self.holdings.is_dead(*holder)) {
                let Assignment { origin, slot, .. } = &record.assignments[holder];
                if origin.is_none_or(|origin| grants.insert((origin.grant, *slot))) {
                    resources.insert(holder, name);
                }
            }
        }
        let claim = |(position, resource): (usize, &str)| -> Claim {
            let Assignment { owner, namespace, .. } = &record.assignments[position];
            // A line of Flink's script has only a pid.
            let uid = owner.uid.or_else(|| owner::of(self.host, owner.pid)?.uid);
            let namespace = self.namespace(namespace.as_deref(), uid);
            Claim { namespace, uid, resource: resource.to_owned() }
        };
        resources.into_iter().map(claim).collect()
    }

    /// The namespace that the owner gives, or else its user.
    fn namespace(&self, said: Option<&str>, uid: Option<u32>) -> Option<String> {
        said.map(str::to_owned).or_else(|| uid.map(|uid| self.accounts().name(uid)))
    }

    /// The names of users.
    pub(super) fn accounts(&self) -> &Accounts {
        self.accounts.get_or_init(|| self.host.accounts())
    }

    pub(super) fn sums(&self, quotas: &[Quota]) -> Sums {
        let claims = self.claims();
        let mut sums = Sums::default();
        for quota in quotas {
            let sum = match &quota.whose {
                Whose::Namespace(name) => sums.of_namespace(name, &quota.resource),
                Whose::User(name) => {
                    let uid = self.accounts().uid(name);
                    let is_user = |_: &str, other: u32| Some(other) == uid;
                    let used = claims.iter().filter(|claim| quota.is_of(claim, &is_user)).count();
                    let sum = sums.users.entry((name.clone(), quota.resource.clone())).or_default();
                    sum.used = used as u64;
                    sum
                }
            };
            sum.limit = Some(quota.limit);
        }
        for Claim { namespace, resource, .. } in claims {
            sums.of_namespace(namespace.as_deref().unwrap_or("?"), &resource).used += 1;
        }
        sums
    }
}

/// The error for a quota of a user that does not exist, because of which every request is refused.
pub(super) fn nobody(config: &Config, quota: &Quota) -> Error {
    let name = quota.user().unwrap_or_default();
    let problem = format!("user `{name}`, who has a quota, is not in /etc/passwd; name the user by number");
    config.error(quota.position, problem)
}
