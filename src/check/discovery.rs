//! The discovery script of Flink's GPU driver, and what it is called with.
//!
//! The driver passes `PATH AMOUNT ARGS` as one string, which Java splits at blanks. There is no shell and no quoting:
//! quotes reach the script, and a path with a blank does not work.
//!
//! Source: Flink, `GPUDriver`.

use std::path::Path;

use super::{Finding, Offered, Rules};
use crate::nearest::nearest;

/// Flink's own, where no path is set.
const STOCK: &str = "plugins/external-resource-gpu/nvidia-gpu-discovery.sh";
/// What the environment variables that enable coordination begin with.
pub(super) const COORDINATES: &str = "GPU_COORD_ENABLE_COORDINATION";
/// The only options that Flink's own script knows. It ignores any other word.
const OF_STOCK: [&str; 2] = ["--enable-coordination-mode", "--coordination-file"];

/// One call of the script as it is configured, each text with its line.
pub(super) struct Script<'a> {
    /// The key of the path.
    pub(super) key: String,
    /// The name of the resource in Flink's configuration.
    pub(super) name: &'a str,
    pub(super) amount: (u128, usize),
    pub(super) path: Option<(String, usize)>,
    pub(super) args: Option<(String, usize)>,
    /// Whether the TaskManager sees all GPUs of its host and not only its own.
    pub(super) sees_the_host: bool,
    /// Whether a variable in the environment of the TaskManagers sets coordination.
    pub(super) has_variable: bool,
}

/// Which program the script is, judged by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    GpuCoord,
    /// Flink's own script.
    Stock,
    Other,
}

impl Script<'_> {
    pub(super) fn check(&self, rules: &Rules<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let program = self.program(rules, &mut findings);
        if let Some((args, line)) = &self.args {
            let words: Vec<&str> = args.split_ascii_whitespace().collect();
            match unquoted(args, &words) {
                Some(text) => findings.push(Finding::new(*line, text)),
                None => findings.extend(self.words(program, &words, *line, rules)),
            }
        }
        // Otherwise a misspelt option may have been meant to enable it.
        if findings.is_empty() {
            findings.extend(self.uncoordinated(program, rules));
        }
        self.units(program, rules, &mut findings);
        findings
    }

    fn program(&self, rules: &Rules<'_>, findings: &mut Vec<Finding>) -> Program {
        let Some((path, line)) = &self.path else {
            if self.sees_the_host {
                let text = format!(
                    "`{}` is missing: Flink runs its own script, {STOCK}, and not gpu-coord",
                    self.key
                );
                findings.push(Finding::new(self.amount.1, text));
            }
            return Program::Stock;
        };
        let mut say = |text| findings.push(Finding::new(*line, text));
        if path.contains(char::is_whitespace) {
            say(format!(
                "the path `{path}` has a blank, at which Flink divides it; name the script by another path"
            ));
        } else if !path.starts_with('/') {
            say(format!("the path `{path}` is not absolute: Flink looks for it below FLINK_HOME"));
        } else if let Some(host) = rules.host.as_ref().filter(|_| self.sees_the_host) {
            match (host.executable)(Path::new(path)) {
                Ok(resolved) => return program(&resolved),
                Err(problem) => say(format!(
                    "the script {path} {problem} on this host; name where gpu-coord is, or install it there"
                )),
            }
        }
        program(Path::new(path))
    }

    /// What the program would say about the words of the args, which reach it as they are written.
    fn words(&self, program: Program, words: &[&str], line: usize, rules: &Rules<'_>) -> Vec<Finding> {
        match program {
            Program::GpuCoord => {
                let amount = self.amount.0.to_string();
                let call: Vec<&str> = [amount.as_str()].into_iter().chain(words.iter().copied()).collect();
                (rules.refusal)(&call).map(|text| Finding::new(line, text)).into_iter().collect()
            }
            Program::Stock => passed_over(words).map(|text| Finding::new(line, text)).collect(),
            Program::Other => {
                let known = words.iter().filter(|word| **word == "--enable-coordination");
                known.map(|_| Finding::new(line, documented())).collect()
            }
        }
    }

    /// A finding if nothing enables coordination. `--no-coordination` counts as intended.
    fn uncoordinated(&self, program: Program, rules: &Rules<'_>) -> Option<Finding> {
        let (args, line) = self.args.as_ref().map_or(("", self.amount.1), |(args, line)| (args, *line));
        let says = |word: &str| args.split_ascii_whitespace().any(|other| other == word);
        let is_said = ["--enable-coordination-mode", "--enable-coordination", "--no-coordination"].map(says);
        let mut presets = rules.config.iter().flat_map(|config| &config.options);
        let is_preset = presets.any(|option| option.name.contains("coordination-mode"));
        let is_ours = program == Program::GpuCoord && self.sees_the_host;
        if !is_ours || self.has_variable || is_preset || is_said.contains(&true) {
            return None;
        }
        let text = "without `--enable-coordination-mode` every TaskManager of a host is told the same GPUs; \
                    add it to the args, or set GPU_COORD_ENABLE_COORDINATION_MODE=1 in the TaskManagers' \
                    environment";
        Some(Finding::new(line, text.to_owned()))
    }

    /// Checks the amount against shared devices and against the host.
    fn units(&self, program: Program, rules: &Rules<'_>, findings: &mut Vec<Finding>) {
        let (amount, line) = self.amount;
        let is_ours = program == Program::GpuCoord;
        let says = |option| self.value(option).filter(|_| is_ours);
        let asked =
            Offered { resource: says("--resource"), devices: says("--devices"), exclude: says("--exclude") };
        if is_ours {
            let resource = asked.resource.unwrap_or("nvidia.com/gpu");
            findings.extend(rules.over(line, &format!("`{}`", self.name), resource, amount));
        }
        let Some(host) = rules.host.as_ref().filter(|_| self.sees_the_host) else { return };
        match (host.offered)(&asked) {
            Ok(offered) if amount <= offered as u128 => {}
            Ok(offered) => {
                let of = asked.resource.map(|resource| format!(" of {resource}")).unwrap_or_default();
                let text =
                    format!("`{}` asks for {amount} units{of}, and this host has {offered}", self.name);
                findings.push(Finding::new(line, text));
            }
            Err(problem) => {
                let line = self.args.as_ref().map_or(line, |(_, line)| *line);
                findings.push(Finding::new(line, problem));
            }
        }
    }

    /// The value of an option in the args.
    fn value(&self, option: &str) -> Option<&str> {
        let mut words = self.args.as_ref()?.0.split_ascii_whitespace();
        while let Some(word) = words.next() {
            match word.strip_prefix(option) {
                Some("") => return words.next(),
                Some(value) if value.starts_with('=') => return Some(&value[1..]),
                _ => {}
            }
        }
        None
    }
}

fn program(path: &Path) -> Program {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("gpu-coord") {
        Program::GpuCoord
    } else if STOCK.ends_with(name.as_ref()) {
        Program::Stock
    } else {
        Program::Other
    }
}

/// What in the args only a shell would understand.
fn unquoted(args: &str, words: &[&str]) -> Option<String> {
    if args.contains(['"', '\'', '\\']) {
        let shown: Vec<String> = words.iter().map(|word| format!("[{word}]")).collect();
        return Some(format!(
            "Flink divides args at blanks and keeps quotes, so that the words are {}; set what has a blank by an \
             environment variable, such as GPU_COORD_COORDINATION_FILE",
            shown.concat()
        ));
    }
    let expanded = words.iter().find(|word| word.contains(['$', '`', '*']) || word.starts_with('~'))?;
    Some(format!("`{expanded}` reaches the script as it is written: Flink starts it without a shell"))
}

/// Words that Flink's own script does not know.
fn passed_over<'a>(words: &'a [&'a str]) -> impl Iterator<Item = String> + 'a {
    let is_value = |at: usize| at > 0 && words[at - 1] == OF_STOCK[1];
    let unknown =
        words.iter().enumerate().filter(move |(at, word)| !OF_STOCK.contains(word) && !is_value(*at));
    unknown.map(|(_, word)| match (*word, nearest(word, OF_STOCK.into_iter())) {
        ("--enable-coordination", _) => documented(),
        (_, Some(near)) => format!("Flink's own script passes over `{word}`; did you mean `{near}`?"),
        (_, None) => format!("Flink's own script passes over `{word}`"),
    })
}

fn documented() -> String {
    "Flink's own script passes over `--enable-coordination`, though Flink's documentation says so, and coordinates \
     nothing; write `--enable-coordination-mode`"
        .to_owned()
}
