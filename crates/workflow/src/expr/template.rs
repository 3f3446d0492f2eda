//! Templates: `/api/deliveries/{{input.deliveryId}}`.

use highwater_settings::Secrets;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ExprError, MissingValue, Path, Scope, stored_as_text};

/// A text whose variables are resolved in a `Scope`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Hole(Path),
}

impl Part {
    /// The text, with one character in place of a variable.
    fn written(&self) -> &str {
        match self {
            Part::Text(text) => text,
            Part::Hole(_) => "x",
        }
    }
}

stored_as_text!(Template);

impl Template {
    pub fn parse(source: &str) -> Result<Template, ExprError> {
        let mut parts = Vec::new();
        let mut rest = source;
        while let Some((text, after)) = rest.split_once("{{") {
            let Some((hole, after)) = after.split_once("}}") else {
                return Err(ExprError(format!("`{source}` has `{{{{` without `}}}}`")));
            };
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            parts.push(Part::Hole(Path::parse(hole.trim())?));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template {
            source: source.to_owned(),
            parts,
        })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().filter_map(|part| match part {
            Part::Hole(path) => Some(path),
            Part::Text(_) => None,
        })
    }

    /// The text with its variables resolved; values other than strings are written as JSON.
    pub fn text(&self, scope: &Scope<'_>) -> Result<String, MissingValue> {
        self.filled(scope, |out, text| out.push_str(text))
    }

    /// The text with its variables and its references to secrets resolved. Only references of the definition count,
    /// never those in a value.
    pub(crate) fn text_with_secrets(
        &self,
        scope: &Scope<'_>,
        secrets: &Secrets,
    ) -> Result<String, String> {
        let resolved = self.parts.iter().map(|part| match part {
            Part::Text(text) => {
                let text = secrets.resolve(text).map_err(|error| error.to_string())?;
                Ok(Part::Text(text.into_owned()))
            }
            hole => Ok(hole.clone()),
        });
        let template = Template {
            source: String::new(),
            parts: resolved.collect::<Result<_, String>>()?,
        };
        template.text(scope).map_err(|missing| missing.to_string())
    }

    /// The text with its variables resolved and escaped for a URL. No value can leave its path segment or remove it: a
    /// segment that becomes `.`, `..` or empty is an error, because servers resolve it to another path.
    pub fn url(&self, scope: &Scope<'_>) -> Result<String, String> {
        let url = self
            .filled(scope, escape)
            .map_err(|missing| missing.to_string())?;
        let path = url.split_once('?').map_or(&url[..], |(path, _)| path);
        let is_empty = |segment: &&str| segment.is_empty();
        let written: String = self.parts.iter().map(Part::written).collect();
        let written = written
            .split_once('?')
            .map_or(&written[..], |(path, _)| path);
        let emptied =
            path.split('/').filter(is_empty).count() > written.split('/').filter(is_empty).count();
        match emptied || path.split('/').any(|segment| matches!(segment, "." | "..")) {
            true => Err(format!(
                "`{path}` of `{}` has a segment that is empty, `.` or `..`",
                self.source
            )),
            false => Ok(url),
        }
    }

    /// A template that is a single variable becomes its value, any other a string.
    pub fn value(&self, scope: &Scope<'_>) -> Result<Value, MissingValue> {
        match &self.parts[..] {
            [Part::Hole(path)] => found(scope, path).map(|value| value.into_owned()),
            _ => self.text(scope).map(Value::String),
        }
    }

    fn filled(
        &self,
        scope: &Scope<'_>,
        mut put: impl FnMut(&mut String, &str),
    ) -> Result<String, MissingValue> {
        let mut out = String::with_capacity(self.source.len() + 32);
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Hole(path) => match &*found(scope, path)? {
                    Value::String(text) => put(&mut out, text),
                    other => put(&mut out, &other.to_string()),
                },
            }
        }
        Ok(out)
    }
}

fn found<'s>(
    scope: &'s Scope<'_>,
    path: &Path,
) -> Result<std::borrow::Cow<'s, Value>, MissingValue> {
    scope.find(path).ok_or_else(|| MissingValue {
        path: path.to_string(),
    })
}

/// Percent-encodes everything but RFC 3986's unreserved characters.
fn escape(out: &mut String, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte as char);
            }
            _ => {
                out.push('%');
                out.push(DIGITS[usize::from(byte >> 4)] as char);
                out.push(DIGITS[usize::from(byte & 15)] as char);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scope::testing::Fixed;
    use super::*;

    fn filled(template: &str) -> (String, String, String) {
        let answers = Fixed(vec![("drone", 200, "D 17")]);
        let scope = Scope::new("w", "../x", br#"{"n":7,"s":"a/b"}"#, &answers);
        let template = Template::parse(template).unwrap();
        (
            template.text(&scope).unwrap(),
            template.url(&scope).unwrap(),
            template.value(&scope).unwrap().to_string(),
        )
    }

    #[test]
    fn holes_are_filled() {
        let (text, url, value) = filled("/a/{{input.s}}/{{ input.n }}?d={{steps.drone.body}}");
        assert_eq!(text, "/a/a/b/7?d=D 17");
        assert_eq!(url, "/a/a%2Fb/7?d=D%2017");
        assert_eq!(value, "\"/a/a/b/7?d=D 17\"");
    }

    #[test]
    fn one_hole_alone_keeps_its_type() {
        assert_eq!(filled("{{input.n}}").2, "7");
        assert_eq!(filled("{{input.n}} ").2, "\"7 \"");
    }

    #[test]
    fn an_id_cannot_climb_out_of_its_folder() {
        assert_eq!(filled("/p/{{id}}").1, "/p/..%2Fx");
    }

    // proves G3
    #[test]
    fn no_value_becomes_a_dot_segment_or_an_empty_one() {
        let answers = Fixed(vec![]);
        let url = |template: &str, value: &str| {
            let input = serde_json::json!({"v": value}).to_string();
            let scope = Scope::new("w", "i", input.as_bytes(), &answers);
            Template::parse(template).unwrap().url(&scope)
        };
        for value in ["", ".", ".."] {
            for template in [
                "/orders/{{input.v}}/items",
                "/orders/{{input.v}}",
                "/{{input.v}}?a=1",
            ] {
                assert!(url(template, value).is_err(), "{template} {value:?}");
            }
            assert!(url("/orders?next={{input.v}}", value).is_ok(), "{value:?}");
            assert!(url("/orders/a{{input.v}}b/", value).is_ok(), "{value:?}");
        }
        assert_eq!(url("/a/{{input.v}}/", "x.y").unwrap(), "/a/x.y/");
    }

    // proves G3
    #[test]
    fn secrets_are_those_of_the_definition_never_of_a_value() {
        let answers = Fixed(vec![]);
        let scope = Scope::new("w", "i", br#"{"v":"${env:PATH}"}"#, &answers);
        let template = Template::parse("${env:PATH} {{input.v}}").unwrap();
        let text = template
            .text_with_secrets(&scope, &Secrets::default())
            .unwrap();
        let path = std::env::var("PATH").unwrap();
        assert_eq!(text, format!("{path} ${{env:PATH}}"));
        assert!(format!("{template:?}").contains("${env:PATH}"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let answers = Fixed(vec![]);
        let scope = Scope::new("w", "i", b"{}", &answers);
        let missing = Template::parse("{{steps.drone.body.id}}").unwrap();
        let error = missing.text(&scope).unwrap_err();
        assert_eq!(error.to_string(), "`{{steps.drone.body.id}}` is not there");
    }

    #[test]
    fn an_open_hole_is_refused() {
        assert!(Template::parse("a {{input.b").is_err());
        assert!(Template::parse("a {{}}").is_err());
    }
}
