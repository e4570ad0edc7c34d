//! Flink's configuration, if one is named or `$FLINK_HOME` says where Flink is.

use std::path::{Path, PathBuf};

use super::{Context, Findings};
use crate::check::{self, HostRules, Offered, Rules};
use crate::cli;
use crate::commands::check::{executable, offered, read};
use crate::device::Inventory;
use crate::sharing::Resources;

const CHECK: &str = "flink";
/// Flink's own script, by the end of its name.
const STOCK_SCRIPT: &str = "nvidia-gpu-discovery.sh";
/// With so many devices or more, the script's patterns mistake one index for another: `1` for `11`.
const MANY: usize = 11;

pub(super) fn look(
    context: &Context<'_>,
    given: Option<&Path>,
    devices: Option<&(Inventory, Resources)>,
    findings: &mut Findings,
) {
    let Some(path) = given.map(Path::to_owned).or_else(|| configured(context, findings)) else { return };
    let _guard = context.watch(format!("the contents of {}", path.display()));
    let contents = match read(&path) {
        Ok(contents) => contents,
        Err(error) => return findings.fail(CHECK, error.chain()),
    };
    let offered = |asked: &Offered<'_>| offered(devices, asked);
    let rules = Rules {
        config: context.config,
        refusal: &cli::refusal,
        host: devices.is_some().then_some(HostRules { offered: &offered, executable: &executable }),
    };
    match check::check(&path, &contents, &rules) {
        Err(problem) => {
            let place = format!("{}:{}:{}", path.display(), problem.line, problem.column);
            findings.fail(CHECK, format!("{place}: {}", problem.text));
        }
        Ok(found) if found.is_empty() => findings.ok(CHECK, format!("{} is correct", path.display())),
        Ok(found) => check::lines(&path, &found).lines().for_each(|line| findings.warn(CHECK, line)),
    }
    stock_script(&path, &contents, devices, findings);
}

/// `config.yaml`, else `flink-conf.yaml`. If both exist, Flink's version decides which one it reads.
fn configured(context: &Context<'_>, findings: &mut Findings) -> Option<PathBuf> {
    let directory = Path::new(context.surroundings.flink_home.as_ref()?).join("conf");
    let files = ["config.yaml", "flink-conf.yaml"].map(|name| directory.join(name));
    let mut found = files.into_iter().filter(|path| path.exists());
    let (first, second) = (found.next()?, found.next());
    if let Some(second) = second {
        let (first, second) = (first.display(), second.display());
        findings.warn(
            CHECK,
            format!("{first} was checked, but Flink 1.19 and 1.20 read {second} instead; remove one of them"),
        );
    }
    Some(first)
}

fn stock_script(
    path: &Path,
    contents: &str,
    devices: Option<&(Inventory, Resources)>,
    findings: &mut Findings,
) {
    let is_configured =
        contents.lines().any(|line| !line.trim_start().starts_with('#') && line.contains(STOCK_SCRIPT));
    let many = devices.is_some_and(|(inventory, _)| inventory.devices.len() >= MANY);
    let path = path.display();
    match (is_configured, many) {
        (false, _) => {}
        (true, true) => findings.fail(
            CHECK,
            format!("{path} names Flink's own script, which mistakes one index for another on {MANY} devices or \
                     more; set discovery-script.path to gpu-coord"),
        ),
        (true, false) => findings.warn(
            CHECK,
            format!("{path} names Flink's own script, which can give a GPU away twice; set discovery-script.path to \
                     gpu-coord"),
        ),
    }
}
