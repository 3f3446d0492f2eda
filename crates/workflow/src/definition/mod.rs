//! The definition of a workflow: named steps in order, how each is done and undone, and deadlines.
//!
//! A definition is data. It is read from a TOML file ([`Definition::from_toml`]) or built in Rust ([`Builder`]), and
//! stored on the log as JSON under its [`Version`]. It never changes once instances use it: a changed definition is a
//! new version.

mod builder;
mod check;
mod file;
mod service;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use builder::{Builder, StepBuilder};
pub use check::DefinitionError;
pub use service::{Breaker, Retry, Service, Target, TargetError};

use crate::expr::{Body, Condition, Template};

/// A checked definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    pub name: String,
    /// Deadline of an instance, from its start.
    pub deadline: Option<Duration>,
    pub services: Vec<Service>,
    pub steps: Vec<Step>,
    pub notify: Option<Notify>,
}

/// The first eight bytes of the SHA-256 of the definition's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub name: String,
    pub work: Work,
    pub undo: Option<Work>,
    /// The step is skipped unless this holds.
    pub when: Option<Condition>,
    /// Checked after the step: if it holds, the instance is refused and its steps are undone.
    pub refuse_when: Option<RefusalRule>,
    /// Checked after the step: if it holds, the instance is complete without the remaining steps.
    pub finish_when: Option<Condition>,
    /// Adjacent steps with the same group run in parallel.
    pub group: Option<String>,
    /// Delay before the step begins.
    pub after: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusalRule {
    pub when: Condition,
    pub reason: String,
}

/// A call of a service, or of a function of this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub action: Action,
    pub timeout: Duration,
    pub retry: Retry,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Call(Call),
    /// The name it is registered under.
    Function(String),
}

/// An HTTP call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Index into the definition's services.
    pub service: usize,
    pub method: String,
    /// Appended to the service's URL.
    pub path: Template,
    pub headers: Vec<(String, Template)>,
    pub body: Option<Body>,
    /// Statuses that mean success; empty means 200 to 299.
    pub expect: Vec<u16>,
    /// Statuses of a business refusal, which a retry would not change.
    pub refuse: Vec<u16>,
}

/// Who is notified of parked or failed instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notify {
    pub service: usize,
    pub path: String,
    pub on: Vec<NotifyEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotifyEvent {
    Parked,
    Failed,
}

/// Maximum number of steps.
pub const STEPS_MAX: usize = 64;

impl Definition {
    /// The format on the log.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names are texts and nothing else can fail")
    }

    /// Decodes the output of [`Definition::to_json`] and checks it again.
    pub(crate) fn from_json(json: &[u8]) -> Result<Definition, DefinitionError> {
        let definition: Definition = serde_json::from_slice(json)
            .map_err(|error| DefinitionError::Stored(error.to_string()))?;
        definition.check()?;
        Ok(definition)
    }

    pub fn version(&self) -> Version {
        let digest = Sha256::digest(self.to_json());
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Version(u64::from_be_bytes(first))
    }

    /// The steps that run in parallel with `first`, the first of them.
    pub fn stage(&self, first: usize) -> std::ops::Range<usize> {
        let group = &self.steps[first].group;
        let same = |step: &&Step| group.is_some() && step.group == *group;
        let more = self.steps[first + 1..].iter().take_while(same).count();
        first..first + 1 + more
    }

    pub(crate) fn step_number(&self, name: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.name == name)
    }
}

impl Call {
    pub(crate) fn is_expected(&self, status: u16) -> bool {
        match self.expect.is_empty() {
            true => (200..300).contains(&status),
            false => self.expect.contains(&status),
        }
    }
}
