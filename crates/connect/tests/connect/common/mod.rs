//! Random JSON as text, in every spelling that JSON allows.

use highwater_env::random::Random;
use proptest::prelude::*;

/// JSON before it is spelled out; unlike a parsed value it can repeat a key.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// `true`, `false`, `null` or a number, as written.
    Word(String),
    Text(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// Few names, so that some are equal, some differ in case only, and some need more than one word to compare.
pub(crate) fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a",
        "A",
        "b",
        "B",
        "c",
        "ab",
        "aB",
        "ä",
        "Ä",
        "t",
        "",
        "quote\"d",
        "back\\slash",
        "TollId",
        "a rather long name of a field",
        "another name that is longer than 32 bytes",
    ])
    .prop_map(String::from)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,40}",
        "\\PC{0,10}",
        prop::collection::vec(any::<char>(), 0..6).prop_map(|chars| chars.into_iter().collect()),
        Just("2026-01-01T00:00:00.123Z".to_string()),
    ]
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_string()),
        Just("true".to_string()),
        Just("false".to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        (-1000i64..1000).prop_map(|n| n.to_string()),
        "-?(0|[1-9][0-9]{0,9})\\.[0-9]{1,9}",
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?[eE][+-]?[0-9]{1,2}",
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![word().prop_map(Tree::Word), text().prop_map(Tree::Text)];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::Array),
            prop::collection::vec((name(), inner), 0..5).prop_map(Tree::Object),
        ]
    })
}

/// An event: an object with a few fields, some of them repeated.
pub(crate) fn event() -> impl Strategy<Value = Tree> {
    prop::collection::vec((name(), tree()), 0..8).prop_map(Tree::Object)
}

/// How a line is spelled: blanks between tokens, and escapes where none are needed.
pub(crate) struct Spelling {
    random: Random,
    blanks: bool,
    escapes: bool,
}

impl Spelling {
    pub(crate) fn new(seed: u64) -> Spelling {
        Spelling {
            random: Random::seeded(seed),
            blanks: seed & 1 == 1,
            escapes: seed & 2 == 2,
        }
    }

    pub(crate) fn write(&mut self, tree: &Tree, out: &mut String) {
        self.blank(out);
        match tree {
            Tree::Word(word) => out.push_str(word),
            Tree::Text(text) => self.text(text, out),
            Tree::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.write(item, out);
                }
                self.blank(out);
                out.push(']');
            }
            Tree::Object(fields) => {
                out.push('{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.blank(out);
                    self.text(name, out);
                    self.blank(out);
                    out.push(':');
                    self.write(value, out);
                }
                self.blank(out);
                out.push('}');
            }
        }
        self.blank(out);
    }

    fn blank(&mut self, out: &mut String) {
        if self.blanks && self.random.below(3) == 0 {
            out.push_str([" ", "\t", "  ", "\r"][self.random.below(4) as usize]);
        }
    }

    fn text(&mut self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            let must = c == '"' || c == '\\' || c < ' ';
            let chosen = self.escapes && self.random.below(4) == 0;
            if !must && !chosen {
                out.push(c);
            } else if self.random.below(2) == 0
                && let Some(short) = short_escape(c)
            {
                out.push('\\');
                out.push(short);
            } else {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    let digits = format!("\\u{unit:04x}");
                    out.push_str(&digits);
                });
            }
        }
        out.push('"');
    }
}

fn short_escape(c: char) -> Option<char> {
    match c {
        '"' | '\\' | '/' => Some(c),
        '\n' => Some('n'),
        '\r' => Some('r'),
        '\t' => Some('t'),
        '\u{8}' => Some('b'),
        '\u{c}' => Some('f'),
        _ => None,
    }
}

pub(crate) fn spelled(tree: &Tree, seed: u64) -> String {
    let mut out = String::new();
    Spelling::new(seed).write(tree, &mut out);
    out
}

/// Lines of JSON events, each in a spelling of its own; often several of one layout.
pub(crate) fn lines() -> impl Strategy<Value = Vec<String>> {
    let line = (event(), 0..4u64, 1..4usize).prop_map(|(tree, seed, times)| {
        (0..times as u64)
            .map(|i| spelled(&tree, seed + 4 * i * (seed & 3)))
            .collect::<Vec<_>>()
    });
    prop::collection::vec(line, 0..6).prop_map(|groups| groups.into_iter().flatten().collect())
}
