//! `gpu-coord doctor`: whether this host is set up correctly, and what to do if not.
//!
//! It prints a line for each check, which also says what to do. Nothing is changed, except that a control group is
//! created for a trial and removed again.

mod cgroup;
mod devices;
mod directory;
mod file;
mod flink;
mod proc;
mod quotas;
mod record;

use serde::Serialize;

use super::Context;
use crate::cli::Doctor;
use crate::error::Error;
use crate::exit::Exit;
use crate::notes::Notes;
use crate::plain;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

/// One check, with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    text: String,
}

/// The results so far.
#[derive(Debug, Default, Serialize)]
struct Findings {
    #[serde(rename = "checks")]
    list: Vec<Finding>,
}

impl Findings {
    fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(check, Verdict::Ok, text);
    }

    fn warn(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(check, Verdict::Warn, text);
    }

    fn fail(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(check, Verdict::Fail, text);
    }

    fn add(&mut self, check: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.list.push(Finding { check, verdict, text: text.into() });
    }

    fn worst(&self) -> Verdict {
        self.list.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }

    /// One line each.
    fn text(&self) -> String {
        let line = |Finding { check, verdict, text }: &Finding| {
            format!("{:<4}  {check:<11}  {}\n", verdict.name(), plain::masked(text))
        };
        self.list.iter().map(line).collect()
    }
}

pub(super) fn run(context: &Context<'_>, options: &Doctor, notes: &mut Notes) -> Result<Exit, Error> {
    let mut findings = Findings::default();
    proc::look(context, &mut findings);
    let found = devices::look(context, &options.source, &mut findings);
    let inventory = found.as_ref().map(|(inventory, _)| inventory);
    let path = &options.file.coordination_file;
    let _guard = context.guard(path);
    if file::look(context, path, &mut findings) {
        record::look(context, path, inventory, &mut findings);
    }
    cgroup::look(context, &mut findings);
    quotas::look(context, &mut findings);
    flink::look(context, options.flink_conf.as_deref(), found.as_ref(), &mut findings);
    let text = if options.json {
        super::json::document(&context.host, inventory, &findings, notes)?
    } else {
        findings.text()
    };
    context.print(&text, notes)?;
    Ok(match findings.worst() {
        Verdict::Ok => Exit::Success,
        Verdict::Warn => Exit::NotEnough,
        Verdict::Fail => Exit::Host,
    })
}
