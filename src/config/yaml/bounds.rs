//! How much of a YAML text is accepted: judged by its events, before a tree is built from them.
//!
//! saphyr builds the tree by recursion and copies what an alias names, so a kilobyte of text can need more memory than
//! there is, and a megabyte a deeper stack than there is. saphyr has a limit for copies too, but it ignores the keys of
//! maps.

use std::collections::BTreeMap;

use saphyr::Scalar;
use saphyr_parser::{Event, Parser};

use super::{Problem, problem_at, refused};

/// Bytes in a text.
pub(crate) const LARGEST: usize = 4 << 20;
/// Levels of nesting.
const DEEPEST: usize = 64;
/// Values, including copies. Each takes about 200 bytes.
const MOST: usize = 500_000;

pub(super) fn check(text: &str) -> Result<(), Problem> {
    if text.len() > LARGEST {
        let text = format!("has {} bytes, and at most {} MiB are read", text.len(), LARGEST >> 20);
        return Err(Problem { line: 1, column: 1, text });
    }
    let mut built = Built::default();
    for event in Parser::new_from_iter(text.chars()) {
        let (event, span) = event.map_err(|error| refused(&error))?;
        built.see(&event).map_err(|text| problem_at(span.start, text))?;
    }
    Ok(())
}

/// A list or a map that has not ended.
struct Open {
    anchor: usize,
    values: usize,
}

/// What would be built from the events so far.
#[derive(Default)]
struct Built {
    open: Vec<Open>,
    /// The number of values of each anchor.
    anchored: BTreeMap<usize, usize>,
    values: usize,
}

impl Built {
    fn see(&mut self, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                // saphyr would drop it; as a key, the values after it would then be taken for keys.
                if tag.is_some()
                    && Scalar::parse_from_cow_and_metadata(text.clone(), *style, tag.as_ref()).is_none()
                {
                    return Err(format!("`{text}` is not what its tag says"));
                }
                self.add(1, 1, *anchor)
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => self.begin(*anchor),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { anchor, values }) = self.open.pop() else { return Ok(()) };
                self.add(values + 1, 1, anchor)
            }
            Event::Alias(anchor) => match self.anchored.get(anchor) {
                Some(values) => self.add(*values, *values, 0),
                None => Err("an alias of something that it is itself a part of".to_owned()),
            },
            _ => Ok(()),
        }
    }

    fn begin(&mut self, anchor: usize) -> Result<(), String> {
        self.open.push(Open { anchor, values: 0 });
        if self.open.len() > DEEPEST {
            return Err(format!("values lie within values more than {DEEPEST} deep"));
        }
        Ok(())
    }

    /// `values`: the size of what has ended. `more`: how many of these have not been counted yet. What has an anchor is
    /// kept twice.
    fn add(&mut self, values: usize, more: usize, anchor: usize) -> Result<(), String> {
        if let Some(open) = self.open.last_mut() {
            open.values += values;
        }
        self.values += more;
        if anchor > 0 {
            self.anchored.insert(anchor, values);
            self.values += values;
        }
        if self.values > MOST {
            return Err(format!("more than {MOST} values, those that aliases repeat included"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten levels, each of ten aliases of the one before.
    fn bomb(level: impl Fn(&str) -> String) -> String {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for at in 1..10 {
            let before = vec![format!("*a{}", at - 1); 10].join(", ");
            text += &format!("a{at}: &a{at} {}\n", level(&before));
        }
        text
    }

    #[test]
    #[rustfmt::skip] // a table
    fn too_much_is_refused_before_it_is_built() {
        let most = "more than 500000 values, those that aliases repeat included";
        let deep = "values lie within values more than 64 deep";
        for (case, text, says) in [
            ("aliases in lists",       bomb(|before| format!("[{before}]")),            most),
            ("aliases in maps",        bomb(|before| format!("{{b: [{before}]}}")),     most),
            ("aliases of one list",    format!("- &a [{}]\n", "x, ".repeat(1000)) + &"- *a\n".repeat(600), most),
            ("aliases in keys",        bomb(|before| format!("{{? [{before}] : 1}}")),  most),
            ("many values",            "- a\n".repeat(500_001),                         most),
            ("values with anchors",    "- &a x\n".repeat(250_000),                      most),
            ("deep in one line",       "- ".repeat(100_000) + "x",                      deep),
            ("deep in brackets",       "[".repeat(100) + &"]".repeat(100),              deep),
            ("deep by keys",           "? ".repeat(100_000) + "x",                      deep),
            ("an alias of its own",    "a: &a [*a]".to_owned(),                         "an alias of something that it is itself a part of"),
            ("a tag that is wrong",    "{!!int a: b, c: d}".to_owned(),                 "`a` is not what its tag says"),
            ("a large text",           "#".repeat(LARGEST + 1),                         "has 4194305 bytes, and at most 4 MiB are read"),
        ] {
            assert_eq!(check(&text).unwrap_err().text, says, "{case}");
        }
    }

    #[test]
    fn what_people_write_is_not_too_much() {
        let items: String = (0..30_000).map(|at| format!("- {{name: c{at}, image: x}}\n")).collect();
        for text in ["", "a: &a {b: c}\nd: [*a, *a]\n", "--- 1\n--- 2\n", &items, &"#".repeat(LARGEST)] {
            assert_eq!(check(text), Ok(()));
        }
        assert_eq!(check(&("[".repeat(64) + &"]".repeat(64))), Ok(()));
    }
}
