//! The coordination file: the one record, shared by every TaskManager of the host, of which process holds
//! which unit.
pub(crate) mod format;
pub(crate) mod plan;
pub(crate) mod text;
