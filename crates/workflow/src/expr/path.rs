//! `input.packageInfo.size`, `steps.drone.body`, `id`.

use super::ExprError;

/// The path of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub root: Root,
    /// Field names and array indexes below the root.
    pub keys: Vec<String>,
}

/// The root of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    Id,
    Workflow,
    Input,
    /// The status of a step's answer.
    Status(String),
    /// The body of a step's answer.
    Body(String),
}

impl Path {
    pub fn parse(text: &str) -> Result<Path, ExprError> {
        let wrong = |why: &str| Err(ExprError(format!("`{text}` is no path: {why}")));
        let mut parts = text.split('.');
        let root = match parts.next().unwrap_or_default() {
            "id" => Root::Id,
            "workflow" => Root::Workflow,
            "input" => Root::Input,
            "steps" => {
                let Some(step) = parts.next().filter(|step| !step.is_empty()) else {
                    return wrong("write steps.NAME.body or steps.NAME.status");
                };
                match parts.next() {
                    Some("body") => Root::Body(step.to_owned()),
                    Some("status") => Root::Status(step.to_owned()),
                    _ => return wrong("of a step there are `body` and `status`"),
                }
            }
            _ => return wrong("it begins with `input`, `steps`, `id` or `workflow`"),
        };
        let keys: Vec<String> = parts.map(str::to_owned).collect();
        if keys.iter().any(|key| key.is_empty() || !is_plain(key)) {
            return wrong("a name between dots has letters, digits, `_`, `-`, `$` and `@`");
        }
        match root {
            Root::Input | Root::Body(_) => Ok(Path { root, keys }),
            _ if keys.is_empty() => Ok(Path { root, keys }),
            _ => wrong("there is nothing below it"),
        }
    }

    /// The step whose answer it refers to.
    pub fn step(&self) -> Option<&str> {
        match &self.root {
            Root::Status(step) | Root::Body(step) => Some(step),
            _ => None,
        }
    }
}

fn is_plain(key: &str) -> bool {
    key.chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@'))
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.root {
            Root::Id => f.write_str("id")?,
            Root::Workflow => f.write_str("workflow")?,
            Root::Input => f.write_str("input")?,
            Root::Status(step) => write!(f, "steps.{step}.status")?,
            Root::Body(step) => write!(f, "steps.{step}.body")?,
        }
        self.keys.iter().try_for_each(|key| write!(f, ".{key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_printed_as_it_was_written() {
        for text in [
            "id",
            "workflow",
            "input",
            "input.a.0.b-c",
            "steps.drone.body",
            "steps.drone.body.id",
            "steps.drone.status",
        ] {
            assert_eq!(Path::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        for text in [
            "",
            "inputs.a",
            "input.",
            "input..a",
            "steps",
            "steps.drone",
            "steps.drone.code",
            "steps..body",
            "id.x",
            "steps.drone.status.x",
            "input.a b",
        ] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }
}
