//! The man page: what is generated (NAME, SYNOPSIS, COMMANDS, OPTIONS) between the sections of `man/sections`.

use std::fs;
use std::path::Path;

use clap::builder::Resettable;
use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::{AMOUNT, forms, options};
use crate::cli::options::Cli;

/// When a section was last written by hand.
const DATE: &str = "2026-11-30";

/// Written by hand, after what is generated.
const SECTIONS: [&str; 7] =
    ["exit-status", "files", "environment", "isolation", "notes", "examples", "see-also"];

/// It says that there is a table (to man(1)), where the page is from, and what an apostrophe is (each text that
/// clap_mangen makes begins so).
const HEAD: &str = r#"'\" t
.\" Made of src/cli and man/sections by `UPDATE_PROSE=1 cargo test prose`.
"#;
const APOSTROPHE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

pub(super) fn page() -> String {
    let man = Man::new(Cli::command()).date(DATE).manual("User Commands");
    let mut page = HEAD.to_owned() + APOSTROPHE;
    page += &rendered(|out| man.render_title(out).and_then(|()| man.render_name_section(out)));
    page += &synopsis();
    page += &by_hand("description");
    page += &commands();
    page += &by_hand("options");
    page += &all_options();
    page.extend(SECTIONS.map(by_hand));
    page
}

fn by_hand(section: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("man/sections/{section}.roff"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rendered(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    render(&mut text).unwrap();
    String::from_utf8(text).unwrap().replace(APOSTROPHE, "")
}

fn synopsis() -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for (number, form) in forms().iter().enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        roff.text(words(&usage(form)));
    }
    rendered(|out| roff.to_writer(out))
}

fn usage(form: &Command) -> String {
    form.get_overridden_usage().map(ToString::to_string).expect("every command says its usage")
}

/// What is typed as it is in bold, what stands for something else in italics.
fn words(usage: &str) -> Vec<Inline> {
    let is_literal = |word: &str| word.starts_with(|first: char| first == '-' || first.is_lowercase());
    let inline = |word: &str| if is_literal(word) { bold(word) } else { italic(word) };
    usage.split(' ').filter(|word| !word.is_empty()).flat_map(|word| [inline(word), roman(" ")]).collect()
}

fn commands() -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["COMMANDS"]);
    for form in forms() {
        roff.control("SS", [form.get_name()]);
        let (before, after) = usage(&form).split_once("[OPTIONS]").map(owned).expect("it takes options");
        let mut line = words(before.trim_end());
        let is_told =
            |option: &&Arg| before.contains(&format!("--{}", option.get_long().unwrap_or_default()));
        options(&form).filter(|option| !is_told(option)).for_each(|option| line.extend(bracketed(option)));
        line.extend(words(after.trim()));
        roff.text(line);
        roff.control("PP", []);
        roff.text([roman(sentence(&form))]);
        roff.extend([example(&form)]);
    }
    rendered(|out| roff.to_writer(out))
}

fn owned((before, after): (&str, &str)) -> (String, String) {
    (before.to_owned(), after.to_owned())
}

fn sentence(form: &Command) -> String {
    let about = form.get_about().map(ToString::to_string).unwrap_or_default();
    let aliases: Vec<&str> = form.get_visible_aliases().collect();
    match aliases[..] {
        [] => format!("{about}."),
        _ => format!("{about}. Also spelled {}.", aliases.join(", ")),
    }
}

/// What the help says after the options; an example is set as one.
fn example(form: &Command) -> Roff {
    let text = form.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("Example: ") {
            Some(example) => {
                roff.control("PP", []).control("RS", ["4"]).control("EX", []);
                roff.text([roman(example)]).control("EE", []).control("RE", []);
            }
            None => {
                roff.text([roman(line)]);
            }
        }
    }
    roff
}

/// `[--option VALUE]`
fn bracketed(option: &Arg) -> Vec<Inline> {
    let name = format!("--{}", option.get_long().expect("every option has a long name"));
    let value = option.get_value_names().filter(|_| option.get_action().takes_values());
    let mut inline = vec![roman("["), bold(name)];
    if let Some([value]) = value {
        match option.is_require_equals_set() {
            true => inline.extend([roman("[="), italic(value.as_str()), roman("]")]),
            false => inline.extend([roman(" "), italic(value.as_str())]),
        }
    }
    inline.push(roman("] "));
    inline
}

/// Each option once, with the commands that have it. Two commands may say different things of one name.
fn all_options() -> String {
    let forms = forms();
    let mut told: Vec<&Arg> = Vec::new();
    for option in forms.iter().flat_map(options) {
        if !told.iter().any(|other| is_same(other, option)) {
            told.push(option);
        }
    }
    told.sort_by_key(|option| option.get_long());
    told.into_iter().map(|option| entry(option, &forms)).collect()
}

fn is_same(one: &Arg, other: &Arg) -> bool {
    one.get_long() == other.get_long() && one.get_help() == other.get_help()
}

fn entry(option: &Arg, forms: &[Command]) -> String {
    let has = |form: &&Command| options(form).any(|other| is_same(option, other));
    let names: Vec<&str> = forms.iter().filter(has).map(Command::get_name).collect();
    let help = option.get_long_help().or_else(|| option.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut text = if help.ends_with('.') { help } else { help + "." };
    if names.len() < forms.len() {
        text = format!("{text} ({})", names.join(", "));
    }
    // clap_mangen leaves out the text of an option that is not in the short help. What the option contradicts is
    // not here.
    let alone = option.clone().help(text).hide_short_help(false).conflicts_with(Resettable::Reset);
    let man = Man::new(Command::new("alone").disable_help_flag(true).arg(alone));
    rendered(|out| man.render_options_section(out)).replace(".SH OPTIONS\n", "")
}

#[test]
fn the_bare_form_is_the_first() {
    assert_eq!(forms()[0].get_name(), AMOUNT);
    assert!(page().contains("\\fBgpu\\-coord\\fR \\fIAMOUNT\\fR \\fI[OPTIONS]\\fR"), "{}", synopsis());
}
