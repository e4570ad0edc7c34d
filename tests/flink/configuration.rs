//! The configuration of one standalone cluster, as an administrator would write it.

use std::fs;
use std::path::Path;

/// An external resource that every TaskManager of the cluster asks for.
pub(crate) struct Resource<'a> {
    pub(crate) name: &'a str,
    pub(crate) amount: usize,
    pub(crate) script: &'a Path,
    /// `None` leaves `discovery-script.args` unset.
    pub(crate) args: Option<String>,
}

/// Ports are the kernel's choice, which the JobManager then logs: a port that was found free before may be
/// taken by then. What Flink's own start scripts compute of the memory has to be spelt out without them.
/// The patience is for a machine that does much else; the heartbeat makes a killed TaskManager missed soon.
const FIXED: &str = "
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: 0
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.bind-port: '0'
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 1
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 64m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.task.heap.size: 64m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.network.min: 16m
taskmanager.memory.network.max: 16m
taskmanager.memory.managed.size: 8m
taskmanager.memory.jvm-metaspace.size: 96m
taskmanager.memory.jvm-overhead.min: 64m
taskmanager.memory.jvm-overhead.max: 64m
heartbeat.interval: 500
pekko.ask.timeout: 60 s
pekko.startup-timeout: 60 s
";

/// To the console, which the harness keeps in a file of each process.
const LOGGING: &str = "
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %-5p %c{1} %m%n
";

pub(crate) const LOGGING_FILE: &str = "log4j.properties";

/// Writes `directory`, and has Flink keep its temporary files in `scratch`.
pub(crate) fn write(directory: &Path, scratch: &Path, resources: &[Resource]) {
    let scratch = scratch.display();
    let mut text = FIXED.to_owned();
    for option in ["io.tmp.dirs", "blob.storage.directory", "web.tmpdir"] {
        text += &format!("{option}: {scratch}\n");
    }
    let names: Vec<&str> = resources.iter().map(|resource| resource.name).collect();
    text += &format!("external-resources: [{}]\n", names.join(", "));
    text.extend(resources.iter().map(section));
    fs::create_dir(directory).unwrap();
    fs::write(directory.join("config.yaml"), text).unwrap();
    fs::write(directory.join(LOGGING_FILE), LOGGING).unwrap();
}

fn section(resource: &Resource) -> String {
    let of = format!("external-resource.{}", resource.name);
    let script = format!("{of}.param.discovery-script");
    let factory = "org.apache.flink.externalresource.gpu.GPUDriverFactory";
    let mut text = format!("{of}.amount: {}\n{of}.driver-factory.class: {factory}\n", resource.amount);
    text += &format!("{script}.path: {}\n", resource.script.display());
    if let Some(args) = &resource.args {
        text += &format!("{script}.args: '{args}'\n");
    }
    text
}
