//! A standalone Spark cluster on 127.0.0.1. Its processes end with the value.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::configuration;
use crate::engines::directory::Directory;
use crate::engines::environment::{java_home, search_path};
use crate::engines::process::{Running, until};
use crate::engines::record::{Holdings, holdings};
use crate::engines::{JDK, http};
use crate::spark::HOME;

const MASTER: &str = "org.apache.spark.deploy.master.Master";
const WORKER: &str = "org.apache.spark.deploy.worker.Worker";

pub(crate) struct Cluster {
    // Before the directory that they log to: fields are dropped in this order.
    workers: Vec<Worker>,
    _master: Running,
    port: u16,
    web_port: u16,
    started: usize,
    directory: Directory,
}

pub(crate) struct Worker {
    running: Running,
    log: PathBuf,
}

impl Cluster {
    /// A master alone, on a host whose workers are to have `amount` units each.
    pub(crate) fn new(amount: usize, source: &str) -> Cluster {
        let directory = Directory::new();
        configuration::write(&directory.path("conf"), amount, &directory.path("record"), source);
        let log = directory.path("master");
        let mut master = start(&directory, MASTER, &[], &log);
        let port = logged_port(&log, "sparkMaster", &mut master);
        let web_port = logged_port(&log, "MasterUI", &mut master);
        Cluster { workers: Vec::new(), _master: master, port, web_port, started: 0, directory }
    }

    /// Starts a worker.
    pub(crate) fn start(&mut self) -> Worker {
        self.started += 1;
        let log = self.directory.path(&format!("worker-{}", self.started));
        let work = self.directory.path(&format!("work-{}", self.started)).display().to_string();
        let defaults = self.directory.path("conf").join("spark-defaults.conf").display().to_string();
        let master = format!("spark://127.0.0.1:{}", self.port);
        let words = ["--cores", "1", "--memory", "512m", "--work-dir", &work, "--properties-file", &defaults];
        let running = start(&self.directory, WORKER, &[&words[..], &[&master]].concat(), &log);
        Worker { running, log }
    }

    /// Starts `count` more workers at once. Their pids, when all have registered.
    pub(crate) fn add(&mut self, count: usize) -> Vec<u32> {
        let new: Vec<Worker> = (0..count).map(|_| self.start()).collect();
        let pids = new.iter().map(|worker| worker.running.pid()).collect();
        self.workers.extend(new);
        until("registered workers", || {
            let ended = self.workers.iter_mut().any(|worker| worker.running.has_ended());
            assert!(!ended, "a worker has ended");
            (self.alive().len() == self.workers.len()).then_some(())
        });
        pids
    }

    /// Ends a worker with SIGKILL, and waits until the master has noticed.
    pub(crate) fn kill(&mut self, pid: u32) {
        self.workers.retain(|worker| worker.running.pid() != pid);
        until("one worker less", || (self.alive().len() == self.workers.len()).then_some(()));
    }

    /// What the master knows that each worker has.
    pub(crate) fn addresses(&mut self) -> Holdings {
        let alive = self.alive();
        let of = |worker: &mut Worker| {
            let port = logged_port(&worker.log, "sparkWorker", &mut worker.running);
            let known = alive.iter().find(|known| known["port"] == port).expect("it has registered");
            (worker.running.pid(), indexes(&known["resources"]["gpu"]["addresses"]))
        };
        self.workers.iter_mut().map(of).collect()
    }

    /// What the record says.
    pub(crate) fn recorded(&self) -> Holdings {
        holdings(&self.directory.path("record"))
    }

    fn alive(&self) -> Vec<Value> {
        let state = http::json(self.web_port, "/json/");
        let workers = state["workers"].as_array().expect("a list").iter();
        workers.filter(|worker| worker["state"] == "ALIVE").cloned().collect()
    }
}

impl Worker {
    /// What it has logged, once it has ended by itself.
    pub(crate) fn last_words(mut self) -> String {
        until("the end of a worker", || self.running.has_ended().then_some(()));
        fs::read_to_string(&self.log).unwrap()
    }
}

/// `spark-class` becomes java. The kernel ends it when the test itself is killed.
fn start(directory: &Directory, class: &str, words: &[&str], log: &Path) -> Running {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(HOME.join("bin/spark-class")).arg(class);
    command.args(["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]).args(words);
    command.env_clear().env("PATH", search_path()).env("SPARK_HOME", &*HOME);
    command.env("SPARK_CONF_DIR", directory.path("conf"));
    command.envs(java_home().map(|home| ("JAVA_HOME", home)));
    let log = File::create_new(log).unwrap();
    command.stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
    Running::start(&mut command, "util-linux")
}

/// The port of one of Spark's services, which it chose itself.
fn logged_port(log: &Path, service: &str, process: &mut Running) -> u16 {
    let after = format!("Successfully started service '{service}' on port ");
    until(&format!("`{after}` in {} (it needs {JDK})", log.display()), || {
        assert!(!process.has_ended(), "it has ended: {}", fs::read_to_string(log).unwrap());
        let text = fs::read_to_string(log).unwrap();
        let (port, _) = text.split_once(&after)?.1.split_once('.')?;
        port.parse().ok()
    })
}

fn indexes(addresses: &Value) -> BTreeSet<u32> {
    let addresses = addresses.as_array().expect("a list").iter();
    addresses.map(|address| address.as_str().expect("Spark has strings").parse().unwrap()).collect()
}
