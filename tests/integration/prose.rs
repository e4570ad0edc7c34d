//! The man page and the completions, against the program and against those who read them: mandoc, bash, fish, zsh.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::sandbox::{PROGRAM, skip};

const MAN: &str = include_str!("../../man/gpu-coord.1");
/// How a shell reads a file and runs nothing.
const SHELLS: [(&str, &[&str]); 3] = [
    ("bash", &["-n", "completions/gpu-coord.bash"]),
    ("fish", &["--no-execute", "completions/gpu-coord.fish"]),
    ("zsh", &["-n", "completions/_gpu-coord"]),
];

fn run(program: &str, words: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new(program).args(words).current_dir(root).stdin(Stdio::null()).output().unwrap()
}

fn is_there(test: &str, program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").stdin(Stdio::null()).output().is_ok();
    if !is_there {
        skip(test, &format!("it needs {program}"));
    }
    is_there
}

fn help(words: &[&str]) -> String {
    let output = run(PROGRAM, &[words, &["--help"]].concat());
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The first words of every form of the command line: an amount, or a command.
fn forms() -> Vec<String> {
    let help = help(&[]);
    let commands = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = commands.lines().filter_map(|line| line.split_ascii_whitespace().next());
    let names = names.filter(|name| *name != "help").map(ToOwned::to_owned);
    std::iter::once("12".to_owned()).chain(names).collect()
}

/// The long options that the help of a form has.
fn options(form: &str) -> BTreeSet<String> {
    let help = help(&[form]);
    let words = help.lines().filter_map(|line| {
        let line = line.strip_prefix("      ").or_else(|| line.strip_prefix("  -").map(|rest| &rest[3..]))?;
        line.strip_prefix("--")
    });
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '-';
    words.map(|word| format!("--{}", word.split(|end| !is_name(end)).next().unwrap())).collect()
}

/// A section of the man page, from its heading to the next.
fn section(heading: &str) -> &'static str {
    let rest = MAN.split_once(&format!("\n.SH {heading}\n")).unwrap().1;
    rest.split_once("\n.SH ").map_or(rest, |(section, _)| section)
}

#[test]
fn the_man_page_has_every_exit_status_and_no_other() {
    let source = include_str!("../../src/exit.rs");
    let of_source = source.lines().filter_map(|line| line.trim().strip_suffix(',')?.rsplit_once(" = "));
    let of_source: Vec<&str> = of_source.map(|(_, status)| status).collect();
    let of_page: Vec<&str> =
        section("EXIT STATUS").split(".TP\n.B ").skip(1).filter_map(|entry| entry.lines().next()).collect();
    assert_eq!(of_source, of_page);
}

#[test]
fn the_man_page_has_every_option_and_no_other() {
    let mut of_program: BTreeSet<String> = forms().iter().flat_map(|form| options(form)).collect();
    of_program.insert("--version".to_owned()); // of no form
    let headings = section("OPTIONS").split(".TP\n").skip(1).filter_map(|entry| entry.lines().next());
    let names = headings.filter_map(|heading| heading.split_once("\\fB\\-\\-")?.1.split_once("\\fR"));
    let of_page: BTreeSet<String> =
        names.map(|(name, _)| format!("--{}", name.replace("\\-", "-"))).collect();
    assert!(of_program.len() > 20, "{of_program:?}");
    assert_eq!(of_program, of_page);
}

#[test]
fn the_man_page_has_every_command_and_its_example() {
    for form in &forms()[1..] {
        assert!(section("COMMANDS").contains(&format!("\n.SS {form}\n")), "{form}");
    }
    assert_eq!(section("COMMANDS").matches(".SS ").count(), section("COMMANDS").matches(".EX\n").count());
}

#[test]
fn the_man_page_has_every_key_of_the_record() {
    let format = include_str!("../../src/coordination/format.rs");
    let code = format.split_once("#[cfg(test)]").unwrap().0;
    let keys: BTreeSet<&str> = code
        .split("b\"")
        .skip(1)
        .filter_map(|rest| rest.split_once("\" =>"))
        .map(|(key, _)| key)
        .filter(|key| key.bytes().all(|byte| byte.is_ascii_lowercase()))
        .collect();
    assert!(keys.len() > 15, "{keys:?}");
    let files = section("FILES");
    let words: BTreeSet<&str> = files.split(|end: char| !end.is_ascii_alphanumeric()).collect();
    assert_eq!(keys.difference(&words).collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// What the program is made of, without its tests.
fn code() -> Vec<(PathBuf, String)> {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut code = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if !["prose", "tests.rs", "fixture.rs"].iter().any(|end| path.to_str().unwrap().contains(end))
        {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            code.push((path, lines.collect::<Vec<_>>().join("\n")));
        }
    }
    code
}

/// The strings in it that are words.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).filter(|word| !word.is_empty() && !word.contains([' ', '\n', '{', ':', ',']))
}

/// As a reader sees it.
fn plain(section: &str) -> String {
    section.replace("\\-", "-")
}

#[test]
fn the_man_page_has_every_variable_that_is_read_or_set() {
    /// One of the build, and a value.
    const OTHERS: [&str; 2] = ["NVML_CHILD", "GPU_COORD_"];
    let is_capital =
        |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') && word.len() > 3;
    let mut variables = BTreeSet::new();
    for (path, text) in code() {
        // Where the environment is read and set, also the names of one word.
        let is_about_it = ["environment.rs", "becoming.rs"].iter().any(|name| path.ends_with(name));
        let names = words(&text).filter(|word| is_capital(word) && (is_about_it || word.contains('_')));
        variables.extend(names.filter(|word| !OTHERS.contains(word)).map(ToOwned::to_owned));
    }
    assert!(variables.len() > 20 && variables.contains("TERM"), "{variables:?}");
    let page = plain(section("ENVIRONMENT"));
    let told: BTreeSet<&str> = page.split(|end: char| !(end.is_ascii_uppercase() || end == '_')).collect();
    let missing: Vec<_> = variables.iter().filter(|name| !told.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_man_page_has_every_file_that_is_named() {
    /// What every host has, or what is no file of its own.
    const OTHERS: [&str; 2] = ["/dev/null", "/bin/sh"];
    const TOPS: [&str; 6] = ["dev/", "etc/", "opt/", "run/", "usr/", "var/"];
    let mut files = BTreeSet::new();
    for (_, text) in code() {
        let is_file = |word: &&str| {
            TOPS.iter().any(|top| word.trim_start_matches('/').starts_with(top)) && !OTHERS.contains(word)
        };
        files.extend(words(&text).filter(is_file).map(ToOwned::to_owned));
    }
    assert!(files.len() > 12 && files.contains("/etc/gpu-coord/config.yaml"), "{files:?}");
    let page = plain(section("FILES"));
    let words =
        page.split([' ', '\n', ',', ';', '"']).map(|word| word.trim_start_matches('/').trim_end_matches('.'));
    let told: BTreeSet<&Path> = words.map(Path::new).collect();
    // Those below a directory tell it, too.
    let is_told = |file: &str| told.iter().any(|told| told.starts_with(file.trim_start_matches('/')));
    let missing: Vec<_> = files.iter().filter(|file| !is_told(file)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_man_page_has_every_other_spelling() {
    let options =
        [include_str!("../../src/cli/options.rs"), include_str!("../../src/cli/options/shared.rs")].concat();
    let aliases: Vec<&str> =
        options.split("alias = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(aliases, ["deallocate-all", "enable-coordination"]);
    let page = plain(MAN);
    let told: BTreeSet<&str> = page.split([' ', '\n', '.', ',']).collect();
    assert!(told.contains("deallocate-all") && told.contains("--enable-coordination"));
}

#[test]
fn the_man_page_is_sound() {
    let test = "the_man_page_is_sound";
    if is_there(test, "mandoc") {
        let lint = run("mandoc", &["-T", "lint", "-W", "warning", "man/gpu-coord.1"]);
        let found = String::from_utf8_lossy(&lint.stdout) + String::from_utf8_lossy(&lint.stderr);
        assert!(lint.status.success() && found.is_empty(), "{found}");
    }
}

#[test]
fn every_shell_reads_its_completions() {
    for (shell, words) in SHELLS {
        if is_there("every_shell_reads_its_completions", shell) {
            let output = run(shell, words);
            assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
        }
    }
}

/// What a shell offers after these words; the last is begun.
fn bash(words: &[&str]) -> BTreeSet<String> {
    let script = "source completions/gpu-coord.bash
        COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1))
        _gpu__coord \"$1\" \"${!#}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    lines(&run("bash", &[&["-c", script, "bash", "gpu-coord"], words].concat()))
}

fn fish(words: &[&str]) -> BTreeSet<String> {
    let script =
        format!("source completions/gpu-coord.fish; complete -C 'gpu-coord {}' | cut -f 1", words.join(" "));
    lines(&run("fish", &["--no-config", "-c", &script]))
}

#[track_caller]
fn lines(output: &Output) -> BTreeSet<String> {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(ToOwned::to_owned).collect()
}

type Offer = fn(&[&str]) -> BTreeSet<String>;

#[test]
fn bash_and_fish_complete_what_the_program_takes() {
    let test = "bash_and_fish_complete_what_the_program_takes";
    for (shell, offer) in [("bash", bash as Offer), ("fish", fish)] {
        if !is_there(test, shell) {
            continue;
        }
        let first = offer(&[""]);
        assert!(forms()[1..].iter().all(|form| first.contains(form)) && first.contains("1"), "{first:?}");
        for form in forms() {
            let offered = offer(&[&form, "--"]);
            let of_program = options(&form);
            let missing: Vec<_> = of_program.difference(&offered).collect();
            assert!(missing.is_empty(), "{shell} {form}: {missing:?}");
            let extra: Vec<_> = offered.difference(&of_program).collect();
            assert!(extra.is_empty(), "{shell} {form}: {extra:?}");
        }
        for words in [&["2", "--print", ""] as &[&str], &["allocate", "2", "--print", ""]] {
            let offered = offer(words);
            let values = ["index", "host-index", "uuid", "pci"].map(ToOwned::to_owned);
            assert!(values.iter().all(|value| offered.contains(value)), "{shell}: {offered:?}");
        }
    }
}
