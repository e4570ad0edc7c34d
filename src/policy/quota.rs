//! Quotas: how many units of a resource a namespace or a user may hold at a time. Pure.
//!
//! A namespace is a name that an owner gives itself, a convention among those who may write the record; the user is the
//! one that the kernel says the owner runs as.

use crate::config::{Quota, Whose};
use crate::error::Error;

/// One unit that is held or requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// `None`: the owner gave none, and its user is not known.
    pub(crate) namespace: Option<String>,
    pub(crate) uid: Option<u32>,
    pub(crate) resource: String,
}

/// Fails if `amount` units like `asked` are more than a quota leaves after what living owners hold (`held`).
/// `is_user`: whether a user's name or number is that of a user id.
pub(crate) fn check(
    quotas: &[Quota],
    held: &[Claim],
    asked: &Claim,
    amount: u128,
    is_user: &dyn Fn(&str, u32) -> bool,
) -> Result<(), Error> {
    for quota in quotas.iter().filter(|quota| quota.is_of(asked, is_user)) {
        let used = held.iter().filter(|claim| quota.is_of(claim, is_user)).count();
        if amount + used as u128 > u128::from(quota.limit) {
            let (Quota { resource, limit, .. }, whose) = (quota, quota.whose());
            return Err(Error::Refused(format!(
                "exceeded quota of {whose}: requested {resource}={amount}, used {resource}={used}, limited \
                 {resource}={limit}; give some back, or have the quota raised"
            )));
        }
    }
    Ok(())
}

impl Quota {
    /// Whether the claim counts against the quota.
    pub(crate) fn is_of(&self, claim: &Claim, is_user: &dyn Fn(&str, u32) -> bool) -> bool {
        let is_theirs = match &self.whose {
            Whose::Namespace(name) => claim.namespace.as_ref() == Some(name),
            Whose::User(user) => claim.uid.is_some_and(|uid| is_user(user, uid)),
        };
        is_theirs && claim.resource == self.resource
    }

    fn whose(&self) -> String {
        match &self.whose {
            Whose::Namespace(name) => format!("namespace {name}"),
            Whose::User(user) => format!("user {user}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(namespace: &str, uid: u32, resource: &str) -> Claim {
        Claim { namespace: Some(namespace.to_owned()), uid: Some(uid), resource: resource.to_owned() }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_is_asked_for_fits_beside_what_is_held() {
        let quota = |whose: Whose, limit| Quota { whose, resource: "gpu".to_owned(), limit, position: (1, 1) };
        let quotas = [quota(Whose::Namespace("a".to_owned()), 3), quota(Whose::User("flink".to_owned()), 2)];
        let held = [claim("a", 1, "gpu"), claim("a", 1, "gpu"), claim("b", 998, "gpu"), claim("a", 1, "other")];
        let is_user = |name: &str, uid: u32| name == "flink" && uid == 998;
        for (asked, amount, says) in [
            (claim("a", 1, "gpu"),   1, None),
            (claim("a", 1, "gpu"),   2, Some("namespace a: requested gpu=2, used gpu=2, limited gpu=3")),
            (claim("a", 1, "other"), 9, None),
            (claim("c", 1, "gpu"),   9, None),
            (claim("c", 998, "gpu"), 1, None),
            (claim("c", 998, "gpu"), 2, Some("user flink: requested gpu=2, used gpu=1, limited gpu=2")),
            (claim("a", 998, "gpu"), 2, Some("namespace a: requested gpu=2, used gpu=2, limited gpu=3")),
            (claim("a", 1, "gpu"),   u128::MAX - 2, Some("namespace a: requested gpu=340282366920938463463374607431768211453, used gpu=2, limited gpu=3")),
        ] {
            let refused = check(&quotas, &held, &asked, amount, &is_user).err().map(|error| error.to_string());
            let says = says.map(|says| format!("exceeded quota of {says}; give some back, or have the quota raised"));
            assert_eq!(refused, says, "{asked:?} {amount}");
        }
    }
}
