//! The settings of a Flink configuration: dotted keys with values.

use super::Finding;
use crate::config::yaml::{Node, Problem};

/// One key and what it is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    List(Vec<String>),
}

impl Value {
    /// A list in the way in which Flink writes it as one string.
    pub(super) fn text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::List(items) => format!("[{}]", items.join(", ")),
        }
    }
}

/// The settings of Flink 2.x, where keys can be nested, dotted or both.
pub(super) fn nested(root: Node<'_, '_>) -> Result<Vec<Setting>, Problem> {
    let mut settings = Vec::new();
    collect(root, "", &mut settings)?;
    Ok(settings)
}

fn collect(map: Node<'_, '_>, prefix: &str, settings: &mut Vec<Setting>) -> Result<(), Problem> {
    let entries =
        map.merged().ok_or_else(|| map.problem("has a key that is not text, which means nothing here"))?;
    for (name, key, value) in entries {
        let name = format!("{prefix}{name}");
        let line = key.line();
        if value.is_null() {
            continue;
        }
        if let Some(text) = value.text() {
            settings.push(Setting { key: name, value: Value::Text(text), line });
        } else if let Some(items) = value.sequence() {
            let items = items.into_iter().map(|item| item.text().unwrap_or_else(|| "{...}".to_owned()));
            settings.push(Setting { key: name, value: Value::List(items.collect()), line });
        } else {
            collect(value, &format!("{name}."), settings)?;
        }
    }
    Ok(())
}

/// The settings of Flink 1.x, one per line and up to a `#`, and what its parser silently ignores or misreads.
///
/// Source: Flink, `loadLegacyYAMLResource`.
pub(super) fn legacy(text: &str) -> (Vec<Setting>, Vec<Finding>) {
    let (mut settings, mut findings) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let content = text.split_once('#').map_or(text, |(content, _)| content).trim();
        let pair = content.split_once(": ").map(|(key, value)| (key.trim(), value.trim()));
        let Some((key, value)) = pair.filter(|(key, value)| !key.is_empty() && !value.is_empty()) else {
            findings.extend(passed_over(line, content));
            continue;
        };
        if key.starts_with("external-resource") {
            findings.extend(misread(line, value, text));
        }
        settings.push(Setting { key: key.to_owned(), value: Value::Text(value.to_owned()), line });
    }
    (settings, findings)
}

fn passed_over(line: usize, content: &str) -> Option<Finding> {
    content.starts_with("external-resource").then(|| {
        let text = format!(
            "Flink passes over `{content}`: flink-conf.yaml takes `KEY: VALUE` in one line, with a blank behind the \
             colon, and no nested keys"
        );
        Finding::new(line, text)
    })
}

fn misread(line: usize, value: &str, text: &str) -> Option<Finding> {
    if value.starts_with(['"', '\'']) {
        let text = format!(
            "quotes are part of the value in flink-conf.yaml: write {}",
            value.trim_matches(['"', '\''])
        );
        return Some(Finding::new(line, text));
    }
    let (before, after) = text.split_once('#')?;
    let is_cut = !before.ends_with(char::is_whitespace) && !before.is_empty();
    is_cut.then(|| {
        Finding::new(line, format!("flink-conf.yaml ends a value at `#`, so `#{after}` is not part of it"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::documents;

    fn shown(settings: &[Setting]) -> Vec<String> {
        settings.iter().map(|it| format!("{} {}={}", it.line, it.key, it.value.text())).collect()
    }

    #[test]
    fn nested_and_dotted_keys_are_the_same() {
        let text = "a:\n  b.c: 1\n  d:\n    e: true\n    f: [x, y]\na.g: 'z'\nnothing:\n";
        let documents = documents(text).unwrap();
        let settings = nested(Node::of(&documents[0])).unwrap();
        assert_eq!(shown(&settings), ["2 a.b.c=1", "4 a.d.e=true", "5 a.d.f=[x, y]", "6 a.g=z"]);
    }

    #[test]
    fn a_key_that_is_no_text_is_no_setting() {
        for text in ["a: {? [b] : c}", "~: b", "<<: b", "a: {<<: [b]}"] {
            let documents = documents(text).unwrap();
            assert!(nested(Node::of(&documents[0])).is_err(), "{text}");
        }
    }

    /// The lines of Flink's own test of this parser, as far as they matter.
    #[test]
    fn lines_are_read_as_flink_1_reads_them() {
        let text = "###########\n# Some : comments\n\na: 1\nb : 2   # two\nc:3\n no colon\n : \n  \nd: 4# four\n  e  :   5  \n\
                    f: my: 6\ng: \n: h\ni: 7\ni: 8\nj: \t9\r\n";
        let (settings, findings) = legacy(text);
        assert_eq!(
            shown(&settings),
            ["4 a=1", "5 b=2", "10 d=4", "11 e=5", "12 f=my: 6", "15 i=7", "16 i=8", "17 j=9"]
        );
        assert_eq!(findings, []);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_flink_1_misreads_is_told() {
        for (text, says) in [
            ("external-resource:",                  "Flink passes over `external-resource:`: "),
            ("external-resource.gpu.amount:2",      "Flink passes over `external-resource.gpu.amount:2`: "),
            ("external-resource.gpu.amount: ",      "Flink passes over `external-resource.gpu.amount:`: "),
            ("external-resource.gpu.amount: \"2\"", "quotes are part of the value in flink-conf.yaml: write 2"),
            ("external-resource.gpu.param.x: /a#b", "flink-conf.yaml ends a value at `#`, so `#b` is not part of it"),
        ] {
            let (_, findings) = legacy(text);
            assert!(matches!(&findings[..], [only] if only.text.starts_with(says)), "{text}: {findings:?}");
        }
        assert_eq!(legacy("external-resource.gpu.amount: 2 # two\n# external-resource.a\n").1, []);
    }
}
