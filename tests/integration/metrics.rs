//! `status --prometheus`, read by the real promtool and the real node_exporter.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::sandbox::{Process, Sandbox, skip};

fn is_there(test: &str, tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        skip(test, &format!("{tool} is not installed"));
    }
    found
}

fn metrics(host: &Sandbox) -> String {
    let output = host.command("status --prometheus").output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn metrics_count_units_by_resource_and_state() {
    let (host, owner) = (Sandbox::with_gpus(3), Process::start());
    host.answers(&format!("allocate 2 --owner {} --namespace team-a", owner.pid()), "0,1\n");
    let text = metrics(&host);
    for line in [
        "gpu_coord_units{resource=\"nvidia.com/gpu\",state=\"free\"} 1",
        "gpu_coord_units{resource=\"nvidia.com/gpu\",state=\"held\"} 2",
        "gpu_coord_namespace_used_units{namespace=\"team-a\",resource=\"nvidia.com/gpu\"} 2",
        "gpu_coord_device_sound{index=\"2\",id=\"GPU-00000000-0000-4000-8000-000000000002\"} 1",
        "gpu_coord_record_consistent 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    host.refuses("status --prometheus --json", 2, "--prometheus and --json contradict each other");
}

#[test]
fn metrics_are_of_what_is_selected() {
    let host = Sandbox::with_gpus(3);
    let lines = |line: &str| {
        let stdout = host.command(line).assert().code(0).get_output().stdout.clone();
        String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let selected = lines("status --prometheus --devices 1");
    let of_devices = selected.iter().filter(|line| line.starts_with("gpu_coord_device_info"));
    assert!(of_devices.clone().count() == 1 && of_devices.clone().all(|line| line.contains("index=\"1\"")));
    let free = "gpu_coord_units{resource=\"nvidia.com/gpu\",state=\"free\"}";
    assert!(selected.contains(&format!("{free} 1")), "{selected:#?}");
    assert!(lines("status --prometheus").contains(&format!("{free} 3")));
}

#[test]
fn promtool_finds_nothing() {
    if !is_there("promtool_finds_nothing", "promtool") {
        return;
    }
    let host = Sandbox::with_gpus(2);
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = command.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(metrics(&host).as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
}

/// Ends with the test.
struct Exporter {
    child: Child,
    port: u16,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Exporter {
    fn start(host: &Sandbox) -> Exporter {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("prometheus-node-exporter");
        command.args(["--collector.disable-defaults", "--collector.textfile"]);
        command.arg(format!("--collector.textfile.directory={}", host.path().display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Exporter { child, port }
    }

    /// What it serves, once it serves.
    fn scrape(&self) -> String {
        let since = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(since.elapsed() < Duration::from_secs(30), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

#[test]
fn node_exporter_takes_them() {
    if !is_there("node_exporter_takes_them", "prometheus-node-exporter") {
        return;
    }
    let host = Sandbox::with_gpus(2);
    fs::write(host.path().join("gpu-coord.prom"), metrics(&host)).unwrap();
    let served = Exporter::start(&host).scrape();
    for line in [
        "gpu_coord_units{resource=\"nvidia.com/gpu\",state=\"free\"} 2",
        "# HELP gpu_coord_units Units of a resource in a state.",
        "node_textfile_scrape_error 0",
    ] {
        assert!(served.lines().any(|other| other == line), "{line} is not in\n{served}");
    }
}
