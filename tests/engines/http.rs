//! A question to a port of an engine on this machine.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// The JSON that it answers.
pub(crate) fn json(port: u16, path: &str) -> Value {
    let answer = get(port, path).expect("it listens: it has logged so");
    let (_, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer has an empty line");
    serde_json::from_str(body).expect(body)
}

fn get(port: u16, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
