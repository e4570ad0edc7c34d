//! The coordination file: the one record of which process holds which unit, shared by all TaskManagers of the host.
//!
//! | file | what it is |
//! | --- | --- |
//! | `format` | a line, from bytes to values and, in `format::print`, back (pure) |
//! | `pairs` | the keys and values of a line (pure) |
//! | `escape` | a value of a key (pure) |
//! | `separator` | where newlines and separators are (pure) |
//! | `text` | the bytes of a file, read into a record (pure) |
//! | `plan` | a change as crash-safe writes (pure) |
//! | `file` | opening the file, or refusing it |
//! | `lock` | its lock |
//! | `snapshot` | reading it, also without the right to change it |
//! | `ledger` | all of it together: the only way to change the record |
//! | `settle` | what becomes of the lines of Flink's own script |
//! | `place` | whether others see a file at a path |

pub(crate) mod ledger;
pub(crate) mod place;
pub(crate) mod plan;
mod separator;
pub(crate) mod settle;
pub(crate) mod snapshot;

mod escape;
mod file;
mod format;
mod lock;
#[cfg(test)]
mod model;
mod pairs;
mod text;
