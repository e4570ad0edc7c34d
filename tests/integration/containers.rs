//! Containers that share a record: with pid and mount namespaces and a root of their own, as a runtime makes them.
//!
//! Every one has the host's record by a bind mount, and a shell as its pid 1, which owns what is given there.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::running::wait_until;
use crate::sandbox::{PROGRAM, Process, Sandbox, is_root, skip};

/// The command of a container runtime: it makes the namespaces, and ends with the test.
const NAMESPACES: [&str; 5] = ["--pid", "--mount", "--fork", "--kill-child", "--propagation=private"];

/// A root of its own over the host's, with the record at `$INSIDE`. Then its shell does what it is told.
const MAKE: &str = r#"
mount -t tmpfs none "$SCRATCH"
cd "$SCRATCH"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount -t proc proc root/proc
mount --rbind /dev root/dev
mkdir -p root/opt root/var/tmp
rm -f root/var/tmp/flink-gpu-coordination # the host may have one
: > root/opt/gpu-coord
mount --bind "$PROGRAM" root/opt/gpu-coord
if [ -d "$OUTSIDE" ]; then mkdir -p "root$INSIDE"; else : > "root$INSIDE"; fi
mount --bind "$OUTSIDE" "root$INSIDE"
exec chroot root sh -c '
cd /
while read -r line; do
    eval "$line" </dev/null 2>&1
    echo "-- $?"
done'
"#;

/// How the record gets into a container.
#[derive(Clone, Copy)]
enum Shared {
    /// Its directory, at a place of its own.
    Directory,
    /// The file alone, at the default place.
    File,
}

struct Container {
    child: Child,
    orders: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Container {
    fn start(host: &Sandbox, gpus: u32, shared: Shared, namespaces: &[&str]) -> Container {
        let scratch = tempfile::tempdir_in(host.path()).unwrap().keep();
        let (outside, inside, file) = match shared {
            Shared::Directory => (host.path().join("shared"), "/opt/shared", "/opt/shared/coordination"),
            Shared::File => {
                let default = "/var/tmp/flink-gpu-coordination";
                (host.path().join("shared/coordination"), default, default)
            }
        };
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-ec", MAKE]).env_clear().env("SCRATCH", scratch);
        command.env("PATH", "/opt:/usr/sbin:/usr/bin:/sbin:/bin").env("PROGRAM", PROGRAM);
        command.env("OUTSIDE", outside).env("INSIDE", inside);
        command.env("GPU_COORD_SOURCE", format!("simulated:{gpus}"));
        if matches!(shared, Shared::Directory) {
            command.env("GPU_COORD_COORDINATION_FILE", file);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Container { child, orders, output }
    }

    /// What a command there prints on both streams, and its status.
    #[track_caller]
    fn tell(&mut self, line: &str) -> (i32, String) {
        writeln!(self.orders, "{line}").unwrap();
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the container has ended: {text}");
            if let Some(status) = line.strip_prefix("-- ") {
                return (status.trim_end().parse().unwrap(), text);
            }
            text += &line;
        }
    }

    #[track_caller]
    fn answers(&mut self, line: &str, text: &str) {
        assert_eq!(self.tell(line), (0, text.to_owned()), "{line}");
    }

    /// Its pid 1, as the host counts.
    fn pid(&self) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        fs::read_to_string(children).unwrap().trim().parse().unwrap()
    }

    /// All of it is gone afterwards, and with it its namespace.
    fn end(mut self) {
        let namespace = fs::read_link(format!("/proc/{}/ns/pid", self.pid())).unwrap();
        self.kill();
        let is_left = || {
            let processes = fs::read_dir("/proc").unwrap().flatten();
            processes
                .map(|entry| entry.path().join("ns/pid"))
                .any(|link| fs::read_link(link).ok().as_ref() == Some(&namespace))
        };
        wait_until("the namespace is gone", || !is_left());
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A host of so many units with an empty record to be shared, if containers can be made here.
fn host(test: &str, gpus: u32) -> Option<Sandbox> {
    if !is_root(test) {
        return None;
    }
    if fs::read_link("/proc/self/ns/pid").unwrap().to_str() != Some("pid:[4026531836]") {
        skip(test, "it needs the initial pid namespace");
        return None;
    }
    let host = Sandbox::with_gpus(gpus);
    fs::create_dir(host.path().join("shared")).unwrap();
    fs::write(host.path().join("shared/coordination"), "").unwrap();
    let mut container = Container::start(&host, gpus, Shared::Directory, &NAMESPACES);
    writeln!(container.orders, "true").unwrap();
    let mut line = String::new();
    container.output.read_line(&mut line).unwrap();
    if line != "-- 0\n" {
        skip(test, "no namespaces or no overlay can be made here");
        return None;
    }
    Some(host)
}

/// The program on the host itself, but without its control groups: there are those of other tests.
fn on_host(host: &Sandbox, line: &str) -> (i32, String, String) {
    let mut command = Command::new("unshare");
    let script = "umount -l -a -t cgroup,cgroup2; exec \"$0\" \"$@\"";
    command
        .args(["-m", "sh", "-c", script, PROGRAM])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.args(line.split(' ')).arg("--coordination-file");
    command.arg(host.path().join("shared/coordination"));
    if !line.starts_with("deallocate") {
        command.arg("--source=simulated:3");
    }
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The state of each unit and the pid of its owner, as the host sees it.
fn states(host: &Sandbox) -> Vec<(String, Value)> {
    let (code, json, stderr) = on_host(host, "status --json");
    assert_eq!(code, 0, "{stderr}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let unit = |device: &Value| {
        let unit = &device["units"][0];
        (unit["state"].as_str().unwrap().to_owned(), unit["owner"]["pid"].clone())
    };
    json["devices"].as_array().unwrap().iter().map(unit).collect()
}

fn owned(state: &str) -> (String, Value) {
    (state.to_owned(), 1.into())
}

fn free() -> (String, Value) {
    ("free".to_owned(), Value::Null)
}

const ELSEWHERE: &str =
    "held from another pid namespace; run `gpu-coord reclaim` on the host, or use --pid=host";

#[test]
fn pid_1_of_one_container_is_not_pid_1_of_another() {
    let test = "pid_1_of_one_container_is_not_pid_1_of_another";
    let Some(host) = host(test, 3) else { return };
    let kinds = [Shared::Directory, Shared::File, Shared::Directory];
    let mut containers: Vec<Container> =
        kinds.iter().map(|shared| Container::start(&host, 3, *shared, &NAMESPACES)).collect();
    for (at, container) in containers.iter_mut().enumerate() {
        container.answers("gpu-coord allocate 1", &format!("{at}\n"));
        container.answers("cat /proc/1/comm", "sh\n");
    }
    let text = fs::read_to_string(host.path().join("shared/coordination")).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    let key = |line: &str| line.split("pidns=").nth(1).unwrap().split(';').next().unwrap().to_owned();
    assert!(lines.clone().all(|line| line.split(['\t', ' ']).nth(1) == Some("1")), "{text}");
    assert_eq!(lines.map(key).collect::<BTreeSet<_>>().len(), 3, "{text}");
    assert_eq!(states(&host), [owned("held"), owned("held"), owned("held")]);
    // Each knows its own units, gives back its own, and takes nobody else's, even with a take-over.
    let refusal = format!(
        "gpu-coord: 1 unit asked for, 0 of 3 can be given: 1 held by living owners (`gpu-coord status` names them); 2 units are {ELSEWHERE}\n"
    );
    for container in &mut containers {
        let (status, text) = container.tell("gpu-coord allocate 1 --check-dead");
        assert_eq!((status, text), (1, refusal.clone()));
        container.answers("gpu-coord reclaim", "");
    }
    containers[1].answers("gpu-coord deallocateAll", "");
    assert_eq!(states(&host), [owned("held"), free(), owned("held")]);
    containers[2].answers("gpu-coord allocate 1", "1\n");
    assert_eq!(states(&host), [owned("held"), owned("held"), owned("held")]);
}

#[test]
fn what_a_dead_container_held_is_taken_over_by_the_host_alone() {
    let test = "what_a_dead_container_held_is_taken_over_by_the_host_alone";
    let Some(host) = host(test, 3) else { return };
    let start = || Container::start(&host, 3, Shared::Directory, &NAMESPACES);
    // One that is started later may be given the number of a namespace that is gone, and then knows that it is.
    let (mut dead, mut other, mut late) = (start(), start(), start());
    dead.answers("gpu-coord allocate 2", "0,1\n");
    other.answers("gpu-coord allocate 1", "2\n");
    dead.end();
    // Another container cannot know.
    let (status, text) = other.tell("gpu-coord allocate 1 --check-dead");
    assert!(status == 1 && text.contains(&format!("2 units are {ELSEWHERE}")), "{text}");
    let (status, text) = late.tell("gpu-coord allocate 1 --check-dead");
    assert!(status == 1 && text.contains(&format!("3 units are {ELSEWHERE}")), "{text}");
    late.answers("gpu-coord reclaim", "");
    // The host can.
    assert_eq!(states(&host), [owned("stale"), owned("stale"), owned("held")]);
    let owner = Process::start();
    let take_over = format!("1 --enable-coordination-mode --owner {}", owner.pid());
    assert_eq!(on_host(&host, &take_over), (0, "0\n".to_owned(), String::new()));
    let told = (0, "released index 1 of pid 1\n".to_owned(), String::new());
    // All lines of a grant hold or none: the one that was not taken over was released with it, or is now.
    let reclaimed = on_host(&host, "reclaim");
    assert!(reclaimed == told || reclaimed == (0, String::new(), String::new()), "{reclaimed:?}");
    assert_eq!(states(&host)[1..], [free(), owned("held")]);
    // And then the containers can, too.
    late.answers("gpu-coord allocate 1", "1\n");
    assert_eq!(states(&host)[1..], [owned("held"), owned("held")]);
}

#[test]
fn a_dead_process_of_a_living_container_is_judged_by_the_host_and_by_its_own() {
    let test = "a_dead_process_of_a_living_container_is_judged_by_the_host_and_by_its_own";
    let Some(host) = host(test, 3) else { return };
    let start = || Container::start(&host, 3, Shared::Directory, &NAMESPACES);
    let (mut own, mut other) = (start(), start());
    own.answers("sleep 1000 & echo $! > owner; gpu-coord allocate 1 --owner $!", "0\n");
    assert_eq!(states(&host)[0].0, "held");
    own.answers("kill $(cat owner); while kill -0 $(cat owner) 2>/dev/null && ! grep -qs ') Z' /proc/$(cat owner)/stat; do :; done", "");
    wait_until("the host sees it", || states(&host)[0].0 == "stale");
    let (status, text) = other.tell("gpu-coord allocate 3 --check-dead");
    assert!(status == 1 && text.contains(&format!("1 unit is {ELSEWHERE}")), "{text}");
    own.answers("gpu-coord allocate 3 --check-dead", "1,2,0\n"); // what is free first
    assert_eq!(states(&host), [owned("held"), owned("held"), owned("held")]);
}

/// As with `--pid=host`: a container with the host's pids sees what the host sees.
#[test]
fn a_container_with_the_hosts_pids_judges_as_the_host_does() {
    let test = "a_container_with_the_hosts_pids_judges_as_the_host_does";
    let Some(host) = host(test, 3) else { return };
    let mut dead = Container::start(&host, 3, Shared::Directory, &NAMESPACES);
    dead.answers("gpu-coord allocate 3", "0,1,2\n");
    let mut seeing = Container::start(&host, 3, Shared::File, &NAMESPACES[1..]);
    let refusal = "gpu-coord: 3 units asked for, 0 of 3 can be given: 3 held by living owners (`gpu-coord status` names them)\n";
    let ask = format!("gpu-coord allocate 3 --check-dead --owner {}", std::process::id());
    assert_eq!(seeing.tell(&ask), (1, refusal.to_owned()));
    dead.end();
    seeing.answers(&ask, "0,1,2\n");
}

/// A namespace in a namespace: only the initial one sees into both.
#[test]
fn a_container_in_a_container_is_judged_by_the_host_alone() {
    let test = "a_container_in_a_container_is_judged_by_the_host_alone";
    let Some(host) = host(test, 3) else { return };
    let mut outer = Container::start(&host, 3, Shared::Directory, &NAMESPACES);
    outer.answers("gpu-coord allocate 1", "0\n");
    let inner = "unshare --pid --fork --mount-proc --kill-child sh -c 'gpu-coord allocate 1; gpu-coord status --json | grep -c state.*unknown'";
    // The inner pid 1 does not take the outer one for itself.
    outer.answers(inner, "1\n1\n");
    wait_until("the host sees its end", || states(&host)[1].0 == "stale");
    let (status, text) = outer.tell("gpu-coord allocate 2 --check-dead");
    assert!(status == 1 && text.contains(&format!("1 unit is {ELSEWHERE}")), "{text}");
    assert_eq!(on_host(&host, "reclaim"), (0, "released index 1 of pid 1\n".to_owned(), String::new()));
    outer.answers("gpu-coord allocate 2", "1,2\n");
}

/// A record that is not mounted coordinates with nobody, which causes a warning.
#[test]
fn a_container_without_the_record_is_warned() {
    let test = "a_container_without_the_record_is_warned";
    let Some(host) = host(test, 1) else { return };
    let mut container = Container::start(&host, 1, Shared::Directory, &NAMESPACES);
    let warning = "gpu-coord: warning: /var/tmp/flink-gpu-coordination is on this container's own file system, so it coordinates with nothing outside; mount the host's file there\n";
    let line = "unset GPU_COORD_COORDINATION_FILE; gpu-coord allocate 1 --owner 1";
    container.answers(line, &format!("0\n{warning}"));
}

/// Flink's script replaces the record on the host; a container that has the file alone goes on seeing the old one.
#[test]
#[expect(clippy::disallowed_methods, reason = "what Flink's script does to the file")]
fn a_record_that_the_host_has_replaced_is_refused_where_it_is_mounted_alone() {
    let test = "a_record_that_the_host_has_replaced_is_refused_where_it_is_mounted_alone";
    let Some(host) = host(test, 1) else { return };
    let mut container = Container::start(&host, 1, Shared::File, &NAMESPACES);
    container.answers("gpu-coord allocate 1", "0\n");
    let (file, new) = (host.path().join("shared/coordination"), host.path().join("shared/new"));
    fs::copy(&file, &new).unwrap();
    fs::rename(&new, &file).unwrap();
    let problem = "/var/tmp/flink-gpu-coordination: was removed or replaced where it was mounted from, so that it coordinates with nothing outside; mount its directory and not the file alone, or mount it again\n";
    let owner = "sleep 1000 & gpu-coord";
    for line in
        ["deallocateAll", "1 --enable-coordination-mode --owner $!", "exec 1 -- true", "drain 0 --reason x"]
    {
        let refusal = (4, format!("gpu-coord: {problem}"));
        assert_eq!(container.tell(&format!("{owner} {line}")), refusal, "{line}");
    }
    let (status, shown) = container.tell("gpu-coord status");
    assert!(status == 0 && shown.contains(&format!("gpu-coord: warning: {problem}")), "{shown}");
    assert_eq!(states(&host)[0], owned("held"));
}
