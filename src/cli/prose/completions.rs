//! The completions of bash, fish and zsh.
//!
//! clap_complete knows commands and no numbers, so the bare form is given to it as a command that is called
//! `1`, and the pattern that looks for it is widened to every number.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::{Shell, generate};

use super::{AMOUNT, forms, leaked, options};

/// What stands for every AMOUNT, and is offered as the first word.
const ONE: &str = "1";

/// Offered for options that take more than these.
const VALUES: [(&str, &[&str]); 2] = [
    (
        "source",
        &["auto", "nvml", "nvidia-smi", "procfs", "sysfs", "amd-smi", "rocm-smi", "file:", "simulated:"],
    ),
    ("vendor", &["nvidia", "amd"]),
];

/// What else than any file completes a value. No path does where no path is taken.
const HINTS: [(&str, ValueHint); 9] = [
    ("deadline", ValueHint::Other),
    ("devices", ValueHint::Other),
    ("driver-root", ValueHint::DirPath),
    ("exclude", ValueHint::Other),
    ("namespace", ValueHint::Other),
    ("owner", ValueHint::Other),
    ("resource", ValueHint::Other),
    ("root", ValueHint::DirPath),
    ("user", ValueHint::Username),
];

pub(super) fn files() -> Vec<(String, String)> {
    let file = |(shell, name, numbers): (Shell, &str, fn(String) -> String)| {
        (format!("completions/{name}"), numbers(generated(shell)))
    };
    [
        (Shell::Bash, "gpu-coord.bash", bash as fn(String) -> String),
        (Shell::Fish, "gpu-coord.fish", fish),
        (Shell::Zsh, "_gpu-coord", zsh),
    ]
    .map(file)
    .into()
}

fn generated(shell: Shell) -> String {
    let mut text = Vec::new();
    generate(shell, &mut command(), "gpu-coord", &mut text);
    let text = String::from_utf8(text).unwrap();
    // A blank at the end of a line is nothing to any of them.
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The program as clap_complete can understand it.
fn command() -> Command {
    let forms = forms();
    let topic = |form: &Command| Command::new(leaked(form.get_name())).disable_help_flag(true);
    let topics = forms.iter().filter(|form| !is_bare(form)).map(topic);
    let help = Command::new("help").about("Print the help of a command").disable_help_flag(true);
    let root = Command::new("gpu-coord").version("0").disable_help_subcommand(true);
    root.subcommands(forms.iter().map(form))
        .subcommand(help.disable_help_subcommand(true).subcommands(topics))
}

fn is_bare(form: &Command) -> bool {
    form.get_name() == AMOUNT
}

fn form(of: &Command) -> Command {
    let name = if is_bare(of) { ONE } else { leaked(of.get_name()) };
    let about = of.get_about().cloned().unwrap_or_default();
    let form = Command::new(name).about(about);
    let aliases: Vec<&str> = of.get_visible_aliases().map(leaked).collect();
    let operands = of.get_positionals().filter(|_| !is_bare(of)).cloned();
    form.visible_aliases(aliases).args(options(of).cloned().map(option)).args(operands.map(operand))
}

fn option(arg: Arg) -> Arg {
    let arg = match value_name(&arg) {
        Some(name) => arg.value_name(name),
        None => arg,
    };
    let name = arg.get_long().unwrap_or_default();
    if let Some((_, values)) = VALUES.iter().find(|(option, _)| *option == name) {
        return arg.value_parser(PossibleValuesParser::new(*values)).default_value(None::<&str>);
    }
    match HINTS.iter().find(|(option, _)| *option == name) {
        Some((_, hint)) => arg.value_hint(*hint),
        None => arg,
    }
}

/// `NAME` of `NAME[:GROUP]`, in which zsh would take the colon for its own.
fn value_name(arg: &Arg) -> Option<&'static str> {
    let name = arg.get_value_names()?.first()?;
    name.split_once('[').map(|(name, _)| leaked(name))
}

fn operand(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "command" => arg.value_hint(ValueHint::CommandName),
        "amount" => arg.value_hint(ValueHint::Other),
        _ => arg,
    }
}

/// A pattern of `case`. clap_complete looks for a name with a hyphen otherwise than it writes it.
fn bash(text: String) -> String {
    let text = replaced(&text, "gpu__subcmd__coord__", "gpu__coord__");
    replaced(&text, "gpu__coord,1)", "gpu__coord,[0-9]*)")
}

/// A pattern of `case` again, in which `<->` is a number.
fn zsh(text: String) -> String {
    replaced(&text, "(1)\n", "(<->)\n")
}

fn fish(text: String) -> String {
    let using = "__fish_gpu_coord_using_subcommand 1\"";
    let number = "\
function __fish_gpu_coord_using_amount
    set -l cmd (__fish_gpu_coord_needs_command)
    string match -qr '^[0-9]+$' -- $cmd[1]
end

";
    let text = replaced(&text, using, "__fish_gpu_coord_using_amount\"");
    let (functions, rest) = text.split_once("\ncomplete -c").expect("functions first");
    format!("{functions}\n{number}complete -c{rest}")
}

#[track_caller]
fn replaced(text: &str, what: &str, with: &str) -> String {
    assert!(text.contains(what), "clap_complete has changed: no {what:?}");
    text.replace(what, with)
}

#[test]
fn what_is_offered_is_taken() {
    let bare = &forms()[0];
    for (name, values) in VALUES {
        for value in values {
            let value = match *value {
                "file:" => "file:/devices.json",
                "simulated:" => "simulated:8",
                value => value,
            };
            let words = ["gpu-coord".to_owned(), ONE.to_owned(), format!("--{name}={value}")];
            bare.clone().try_get_matches_from(words).unwrap();
        }
    }
}
