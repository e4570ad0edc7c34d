//! A standalone Flink cluster on 127.0.0.1: a JobManager, TaskManagers of one slot each, and the job that
//! asks them what they hold. Its processes end with the value.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::configuration::Resource;
use crate::engines::JDK;
use crate::engines::process::{Running, run, until};
use crate::engines::record::Holdings;
use crate::flink::Flink;
use crate::jvm::Jvms;
use crate::{job, rest};

const JOB_MANAGER: &str = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint";
const TASK_MANAGER: &str = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner";

pub(crate) struct Cluster<'a> {
    // Before the directory that they log to: fields are dropped in this order.
    job_manager: Running,
    task_managers: Vec<TaskManager>,
    started: usize,
    rpc_port: u16,
    rest_port: u16,
    jvms: Jvms<'a>,
}

struct TaskManager {
    running: Running,
    log: PathBuf,
}

impl<'a> Cluster<'a> {
    /// A JobManager alone. Each TaskManager will discover each of `resources` as it starts, with
    /// `environment` in its own.
    pub(crate) fn new(
        flink: &'a Flink,
        resources: &[Resource],
        environment: &[(&'a str, &'a str)],
    ) -> Cluster<'a> {
        let jvms = Jvms::configured(flink, resources, environment);
        let log = jvms.log("jobmanager");
        let mut job_manager = jvms.start(&[], JOB_MANAGER, &log, &[]);
        let rpc_port = logged_port(&log, "Actor system started at ", &mut job_manager);
        let rest_port = logged_port(&log, "Rest endpoint listening at ", &mut job_manager);
        Cluster { job_manager, task_managers: Vec::new(), started: 0, rpc_port, rest_port, jvms }
    }

    /// Starts `count` more TaskManagers at once. Their pids, when all have registered.
    pub(crate) fn add(&mut self, count: usize) -> Vec<u32> {
        self.add_under(&[], count)
    }

    /// The same, each started by a program that becomes it.
    pub(crate) fn add_under(&mut self, under: &[String], count: usize) -> Vec<u32> {
        let arguments = [format!("-Djobmanager.rpc.port={}", self.rpc_port)];
        for _ in 0..count {
            let log = self.jvms.log(&format!("taskmanager-{}", self.started));
            let running = self.jvms.start(under, TASK_MANAGER, &log, &arguments);
            self.task_managers.push(TaskManager { running, log });
            self.started += 1;
        }
        self.wait_for_registration();
        let new = &self.task_managers[self.task_managers.len() - count..];
        new.iter().map(|task_manager| task_manager.running.pid()).collect()
    }

    /// Ends a TaskManager with SIGKILL, and waits until the JobManager has noticed.
    pub(crate) fn kill(&mut self, pid: u32) {
        self.task_managers.retain(|task_manager| task_manager.running.pid() != pid);
        self.wait_for_registration();
    }

    /// What each TaskManager tells a job that it holds: one answer for each of `resources`.
    pub(crate) fn report<const N: usize>(&self, resources: [&str; N]) -> [Holdings; N] {
        let jar = job::jar(self.jvms.flink);
        let class_path = format!("{}:{}", self.jvms.flink.class_path(), jar.display());
        let mut command = self.jvms.command(&class_path, job::CLASS);
        command.arg("127.0.0.1").arg(self.rest_port.to_string()).arg(&jar);
        command.arg(self.task_managers.len().to_string()).args(resources);
        let lines = run(&mut command, JDK);
        let mut answers = [(); N].map(|()| Holdings::new());
        for line in lines.lines().filter_map(|line| line.strip_prefix("REPORT ")) {
            let (pid, lists) = line.split_once(' ').expect(line);
            for (answer, list) in answers.iter_mut().zip(lists.split(' ')) {
                assert!(answer.insert(pid.parse().unwrap(), indexes(list)).is_none(), "{lines}");
            }
        }
        answers
    }

    /// What the TaskManager `pid` has logged.
    pub(crate) fn log_of(&self, pid: u32) -> String {
        let of = |task_manager: &&TaskManager| task_manager.running.pid() == pid;
        fs::read_to_string(&self.task_managers.iter().find(of).expect("one of ours").log).unwrap()
    }

    fn wait_for_registration(&mut self) {
        let wanted = self.task_managers.len();
        until(&format!("{wanted} registered TaskManagers"), || {
            assert!(!self.job_manager.has_ended(), "the JobManager has ended");
            let ended = self.task_managers.iter_mut().any(|task_manager| task_manager.running.has_ended());
            assert!(!ended, "a TaskManager has ended");
            (rest::task_managers(self.rest_port) == wanted).then_some(())
        });
    }
}

fn indexes(list: &str) -> BTreeSet<u32> {
    list.split(',').filter(|index| !index.is_empty()).map(|index| index.parse().expect(list)).collect()
}

/// The port at the end of the line of `log` that contains `after`.
fn logged_port(log: &Path, after: &str, process: &mut Running) -> u16 {
    until(&format!("`{after}` in {}", log.display()), || {
        assert!(!process.has_ended(), "the JobManager has ended: {}", fs::read_to_string(log).unwrap());
        let text = fs::read_to_string(log).unwrap();
        // A line that is not yet ended may lack digits.
        let (line, _) = text.split_once(after)?.1.split_once('\n')?;
        line.rsplit_once(':')?.1.parse().ok()
    })
}
