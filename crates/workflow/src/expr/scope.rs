//! The data that paths are resolved in.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde_json::Value;

use super::{Path, Root};

/// The answers of completed steps.
pub trait Answers {
    /// Status and body.
    fn answer(&self, step: &str) -> Option<(u16, &[u8])>;
}

/// The data of one instance. Documents are parsed on first use.
pub struct Scope<'a> {
    id: &'a str,
    workflow: &'a str,
    input: &'a [u8],
    answers: &'a dyn Answers,
    input_parsed: OnceCell<Value>,
}

impl<'a> Scope<'a> {
    pub fn new(
        workflow: &'a str,
        id: &'a str,
        input: &'a [u8],
        answers: &'a dyn Answers,
    ) -> Scope<'a> {
        Scope {
            id,
            workflow,
            input,
            answers,
            input_parsed: OnceCell::new(),
        }
    }

    /// `None` if there is no value; JSON's null is a value.
    pub fn find(&self, path: &Path) -> Option<Cow<'_, Value>> {
        match &path.root {
            Root::Id => Some(Cow::Owned(self.id.into())),
            Root::Workflow => Some(Cow::Owned(self.workflow.into())),
            Root::Input => {
                let input = self.input_parsed.get_or_init(|| document(self.input));
                below(input, &path.keys).map(Cow::Borrowed)
            }
            Root::Status(step) => self
                .answers
                .answer(step)
                .map(|(status, _)| Cow::Owned(status.into())),
            Root::Body(step) => {
                let (_, body) = self.answers.answer(step)?;
                let body = document(body);
                match path.keys.is_empty() {
                    true => Some(Cow::Owned(body)),
                    false => below(&body, &path.keys).cloned().map(Cow::Owned),
                }
            }
        }
    }
}

/// A body that is not JSON is a string, and an empty one is null.
fn document(bytes: &[u8]) -> Value {
    if bytes.trim_ascii().is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

fn below<'v>(value: &'v Value, keys: &[String]) -> Option<&'v Value> {
    keys.iter().try_fold(value, |value, key| match value {
        Value::Object(fields) => fields.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Answers by name.
    pub(crate) struct Fixed(pub Vec<(&'static str, u16, &'static str)>);

    impl Answers for Fixed {
        fn answer(&self, step: &str) -> Option<(u16, &[u8])> {
            let found = self.0.iter().find(|(name, ..)| *name == step)?;
            Some((found.1, found.2.as_bytes()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Fixed;
    use super::*;

    #[test]
    fn values_are_found_in_input_and_answers() {
        let answers = Fixed(vec![
            ("drone", 200, "D-17"),
            ("package", 201, r#"{"id":"p","tags":["a","b"]}"#),
            ("gone", 204, ""),
        ]);
        let scope = Scope::new("delivery", "d-1", br#"{"a":{"b":null}}"#, &answers);
        for (path, expected) in [
            ("id", Some(r#""d-1""#)),
            ("workflow", Some(r#""delivery""#)),
            ("input.a.b", Some("null")),
            ("input.a.c", None),
            ("input.a.b.c", None),
            ("steps.drone.body", Some(r#""D-17""#)),
            ("steps.drone.status", Some("200")),
            ("steps.package.body.tags.1", Some(r#""b""#)),
            ("steps.package.body.tags.2", None),
            ("steps.gone.body", Some("null")),
            ("steps.other.body", None),
        ] {
            let found = scope.find(&Path::parse(path).unwrap());
            let found = found.map(|value| value.to_string());
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }
}
