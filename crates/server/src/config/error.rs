//! The problems of a configuration: all at once, each with its origin and a hint.

use std::fmt;

use highwater_settings::Position;

use super::effective_settings::Origin;

/// Why the configuration is refused: at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The configuration file, if there is one.
    pub file: Option<String>,
    pub problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub origin: Origin,
    pub message: String,
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(origin: Origin, message: String) -> Problem {
        Problem {
            origin,
            message,
            hint: None,
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_deref().unwrap_or("the settings");
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                writeln!(out)?;
            }
            match &problem.origin {
                Origin::Default => write!(out, "{}", problem.message)?,
                Origin::File(Position { line, column }) => {
                    write!(out, "{file}:{line}:{column}: {}", problem.message)?;
                }
                origin => write!(out, "{}: {}", origin.show(file), problem.message)?,
            }
            if let Some(hint) = &problem.hint {
                write!(out, "\n  {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
