//! The one question that is asked of a JobManager's REST port.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// How many TaskManagers the JobManager at `port` knows.
pub(crate) fn task_managers(port: u16) -> usize {
    let answer = get(port, "/overview").expect("the JobManager listens: it has logged so");
    let (_, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer has an empty line");
    let overview: Value = serde_json::from_str(body).expect(body);
    // Absent while it is starting.
    overview["taskmanagers"].as_u64().unwrap_or(0).try_into().unwrap()
}

fn get(port: u16, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
