//! The keys of a Flink configuration that resemble those of external resources, and that Flink ignores.

use std::collections::BTreeSet;

use super::flink::{ARGS, Flink, LIST, PATH, PREFIX, is_near};
use super::settings::Setting;
use crate::nearest::nearest;

/// The options of a resource, besides `param.` with any name.
const OPTIONS: [&str; 4] = ["amount", "driver-factory.class", "kubernetes.config-key", "yarn.config-key"];

impl Flink<'_> {
    /// `names`: the resources that are enabled.
    pub(super) fn check_keys(&mut self, names: &BTreeSet<String>) {
        let mut told = BTreeSet::new();
        for setting in self.settings {
            let Setting { key, line, .. } = setting;
            let last = self.get(key).map_or(*line, |last| last.line);
            if last > *line && key.starts_with(PREFIX) {
                self.say(*line, format!("`{key}` is set again in line {last}, which holds"));
            }
            let (first, rest) = key.split_once('.').unwrap_or((key, ""));
            match rest {
                "" if key != LIST && is_near(key, LIST) => {
                    self.say(*line, format!("Flink has no `{key}`; did you mean `{LIST}`?"));
                }
                "" => {}
                rest if first == PREFIX => self.option(rest, *line, names, &mut told),
                rest if is_near(first, PREFIX) => {
                    self.say(*line, format!("Flink has no `{key}`; did you mean `{PREFIX}.{rest}`?"));
                }
                _ => {}
            }
        }
    }

    /// `rest`: `gpu.amount`. `told`: the resources that have been reported as not enabled.
    fn option(&mut self, rest: &str, line: usize, names: &BTreeSet<String>, told: &mut BTreeSet<String>) {
        // A name can have dots.
        let mut divided = rest.match_indices('.').map(|(at, _)| (&rest[..at], &rest[at + 1..]));
        let listed = divided.find(|(name, _)| names.contains(*name));
        let Some((name, option)) = listed.or_else(|| rest.split_once('.')) else {
            return self.say(
                line,
                format!("`{PREFIX}.{rest}` names no option of a resource, such as {PREFIX}.gpu.amount"),
            );
        };
        if listed.is_none() && told.insert(name.to_owned()) {
            let near = nearest(name, names.iter().map(String::as_str));
            let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            self.say(
                line,
                format!("{LIST} does not name `{name}`, so that what is set of it is passed over{hint}"),
            );
        }
        let is_param = option.starts_with("param.");
        if is_param && self.is_gpu(name) && option != PATH && option != ARGS {
            let text = wrong_option(name, option, [PATH, ARGS].into_iter());
            self.say(line, text);
        } else if !is_param && !OPTIONS.contains(&option) {
            let text = wrong_option(name, option, OPTIONS.into_iter().chain([PATH, ARGS]));
            self.say(line, text);
        }
    }
}

fn wrong_option(name: &str, option: &str, known: impl Iterator<Item = &'static str>) -> String {
    let hint = match nearest(option, known) {
        Some(near) => format!("; did you mean `{PREFIX}.{name}.{near}`?"),
        None => String::new(),
    };
    format!("Flink has no `{PREFIX}.{name}.{option}`{hint}")
}
