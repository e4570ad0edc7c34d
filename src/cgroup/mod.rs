//! Control groups: what an owner was not given, it cannot open.

pub(crate) mod denylist;
pub(crate) mod v2;
