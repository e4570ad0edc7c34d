//! The Java processes of one cluster: how they are started, and where they log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::configuration::{self, LOGGING_FILE, Resource};
use crate::engines::JDK;
use crate::engines::directory::Directory;
use crate::engines::environment::{java_home, search_path};
use crate::engines::process::{Running, run};
use crate::flink::Flink;

/// Tried here once: `setpriv` would leave the lack of it to a log.
static JAVA: LazyLock<PathBuf> = LazyLock::new(|| {
    let java = jdk("java");
    run(Command::new(&java).arg("-version"), JDK);
    java
});

/// A program of the JDK.
pub(crate) fn jdk(program: &str) -> PathBuf {
    java_home().map_or_else(|| program.into(), |home| home.join("bin").join(program))
}

/// Small, and quick to start rather than quick later.
const TUNED: [&str; 4] =
    ["-Xmx160m", "-XX:MaxMetaspaceSize=160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// Packages of java.base that Flink's own start scripts open to it.
const OPENED: [&str; 7] = [
    "java.lang",
    "java.lang.reflect",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "sun.nio.ch",
];

pub(crate) struct Jvms<'a> {
    pub(crate) flink: &'a Flink,
    environment: Vec<(&'a str, &'a str)>,
    directory: Directory,
}

impl<'a> Jvms<'a> {
    /// Writes their configuration. Of the environment they get `PATH`, unless `environment` has another.
    pub(crate) fn configured(
        flink: &'a Flink,
        resources: &[Resource],
        environment: &[(&'a str, &'a str)],
    ) -> Jvms<'a> {
        let directory = Directory::new();
        let scratch = directory.path("scratch");
        fs::create_dir(&scratch).unwrap();
        configuration::write(&directory.path("conf"), &scratch, resources);
        Jvms { flink, environment: environment.to_vec(), directory }
    }

    /// Starts `class`, which logs to `log`, by a program that becomes it, `under`, if that has any words.
    pub(crate) fn start(&self, under: &[String], class: &str, log: &Path, arguments: &[String]) -> Running {
        let mut command = self.command_under(under, &self.flink.class_path(), class);
        command.arg("--configDir").arg(self.directory.path("conf")).args(arguments);
        let log = File::create_new(log).unwrap();
        command.stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
        Running::start(&mut command, "util-linux")
    }

    /// Through `setpriv`, so that the kernel ends it when the test itself is killed. It executes java in
    /// its own place: the pid is the JVM's.
    pub(crate) fn command(&self, class_path: &str, class: &str) -> Command {
        self.command_under(&[], class_path, class)
    }

    fn command_under(&self, under: &[String], class_path: &str, class: &str) -> Command {
        let scratch = self.directory.path("scratch");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(under).arg(&*JAVA).args(TUNED);
        command.args(OPENED.map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")));
        command.arg(format!("-Djava.io.tmpdir={}", scratch.display()));
        command.arg(format!(
            "-Dlog4j.configurationFile={}",
            self.directory.path("conf").join(LOGGING_FILE).display()
        ));
        command.args(["-cp", class_path, class]).current_dir(scratch);
        command.env_clear().env("PATH", search_path());
        command.env("FLINK_PLUGINS_DIR", self.flink.plugins()).envs(self.environment.iter().copied());
        command
    }

    /// The log of the process called `name`.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.directory.path(&format!("{name}.log"))
    }
}
