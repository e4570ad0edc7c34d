//! The one question that is asked of a JobManager's REST port.

use crate::engines::http;

/// How many TaskManagers the JobManager at `port` knows.
pub(crate) fn task_managers(port: u16) -> usize {
    // Absent while it is starting.
    http::json(port, "/overview")["taskmanagers"].as_u64().unwrap_or(0).try_into().unwrap()
}
