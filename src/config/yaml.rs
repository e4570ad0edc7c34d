//! YAML, read so that every mistake is reported with its place.
//!
//! The keys of a map are taken out one by one; a key that is left at the end is unknown, which is an error.

mod bounds;

use std::collections::BTreeSet;

use saphyr::{LoadableYamlNode, MarkedYaml, Marker, Scalar, ScanError, YamlData};

pub(crate) use bounds::LARGEST;

/// A line and a column, both from 1; the column counts characters.
pub(crate) type Position = (usize, usize);

/// What is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// From 1.
    pub(crate) line: usize,
    /// From 1, in characters.
    pub(crate) column: usize,
    pub(crate) text: String,
}

/// One value, with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a, 'input> {
    yaml: &'a MarkedYaml<'input>,
}

/// A map whose keys are taken out one by one.
pub(crate) struct Keys<'a, 'input> {
    /// In the order of the document.
    left: Vec<Entry<'a, 'input>>,
    known: Vec<&'static str>,
}

/// A key of a map as text, and the nodes of the key and of its value.
pub(crate) type Entry<'a, 'input> = (String, Node<'a, 'input>, Node<'a, 'input>);

/// The value of a key.
pub(crate) fn get<'a, 'input>(entries: &[Entry<'a, 'input>], key: &str) -> Option<Node<'a, 'input>> {
    entries.iter().find(|(name, ..)| name == key).map(|(_, _, value)| *value)
}

/// The documents of a text that keeps within the bounds.
pub(crate) fn documents(text: &str) -> Result<Vec<MarkedYaml<'_>>, Problem> {
    bounds::check(text)?;
    MarkedYaml::load_from_str(text).map_err(|error| refused(&error))
}

fn refused(error: &ScanError) -> Problem {
    problem_at(*error.marker(), format!("not YAML: {}", error.info()))
}

fn problem_at(at: Marker, text: String) -> Problem {
    Problem { line: at.line(), column: at.col() + 1, text }
}

impl<'a, 'input> Node<'a, 'input> {
    pub(crate) fn of(yaml: &'a MarkedYaml<'input>) -> Self {
        Node { yaml }
    }

    pub(crate) fn problem(self, text: impl Into<String>) -> Problem {
        problem_at(self.yaml.span.start, text.into())
    }

    pub(crate) fn position(self) -> Position {
        let start = self.yaml.span.start;
        (start.line(), start.col() + 1)
    }

    pub(crate) fn line(self) -> usize {
        self.yaml.span.start.line()
    }

    pub(crate) fn is_null(self) -> bool {
        matches!(self.yaml.data, YamlData::Value(Scalar::Null))
    }

    /// A scalar as text, even if it looks like a number or a boolean: an index, a quantity.
    pub(crate) fn text(self) -> Option<String> {
        match &self.yaml.data {
            YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
            YamlData::Value(Scalar::Integer(number)) => Some(number.to_string()),
            YamlData::Value(Scalar::FloatingPoint(number)) => Some(number.to_string()),
            YamlData::Value(Scalar::Boolean(value)) => Some(value.to_string()),
            YamlData::Representation(text, ..) => Some(text.to_string()),
            _ => None,
        }
    }

    pub(crate) fn string(self, what: &str) -> Result<String, Problem> {
        self.text().ok_or_else(|| self.problem(format!("{what} takes a text")))
    }

    pub(crate) fn boolean(self, what: &str) -> Result<bool, Problem> {
        match &self.yaml.data {
            YamlData::Value(Scalar::Boolean(value)) => Ok(*value),
            _ => Err(self.problem(format!("{what} takes true or false"))),
        }
    }

    pub(crate) fn integer(self) -> Option<i64> {
        match &self.yaml.data {
            YamlData::Value(Scalar::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn sequence(self) -> Option<Vec<Node<'a, 'input>>> {
        match &self.yaml.data {
            YamlData::Sequence(items) => Some(items.iter().map(|yaml| Node { yaml }).collect()),
            _ => None,
        }
    }

    /// The entries of a map; `None` if it is not a map or has a key that is not a scalar.
    pub(crate) fn entries(self) -> Option<Vec<Entry<'a, 'input>>> {
        let YamlData::Mapping(map) = &self.yaml.data else { return None };
        let entry = |(key, value): (&'a MarkedYaml<'input>, &'a MarkedYaml<'input>)| {
            let key = Node { yaml: key };
            Some((key.text()?, key, Node { yaml: value }))
        };
        map.iter().map(entry).collect()
    }

    /// The same, with the entries of the maps that `<<` names, as in YAML 1.1 and Kubernetes. They follow the map's own
    /// entries, which take precedence.
    pub(crate) fn merged(self) -> Option<Vec<Entry<'a, 'input>>> {
        let (merges, mut entries): (Vec<_>, Vec<_>) =
            self.entries()?.into_iter().partition(|(name, ..)| name == "<<");
        let mut names: BTreeSet<String> = entries.iter().map(|(name, ..)| name.clone()).collect();
        for (_, _, value) in merges {
            for map in value.sequence().unwrap_or_else(|| vec![value]) {
                entries.extend(map.merged()?.into_iter().filter(|(name, ..)| names.insert(name.clone())));
            }
        }
        Some(entries)
    }

    /// The value of a key of a map.
    pub(crate) fn get(self, key: &str) -> Option<Node<'a, 'input>> {
        get(&self.entries()?, key)
    }

    /// `what`: the name of the map in a message. A null value counts as an empty map.
    pub(crate) fn keys(self, what: &str) -> Result<Keys<'a, 'input>, Problem> {
        if self.is_null() {
            return Ok(Keys { left: Vec::new(), known: Vec::new() });
        }
        let left = self.entries().ok_or_else(|| self.problem(format!("{what} takes keys with values")))?;
        Ok(Keys { left, known: Vec::new() })
    }
}

impl<'a, 'input> Keys<'a, 'input> {
    /// A key without a value counts as absent.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Node<'a, 'input>> {
        self.known.push(key);
        let at = self.left.iter().position(|(name, ..)| name == key)?;
        Some(self.left.remove(at).2).filter(|value| !value.is_null())
    }

    /// Fails if a key is left; `nearest` finds the key that may have been meant.
    pub(crate) fn end(
        self,
        nearest: impl Fn(&str, &[&'static str]) -> Option<&'static str>,
    ) -> Result<(), Problem> {
        let Some((name, key, _)) = self.left.first() else { return Ok(()) };
        let hint = match nearest(name, &self.known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are {}", self.known.join(", ")),
        };
        Err(key.problem(format!("`{name}` is not a key here; {hint}")))
    }
}
