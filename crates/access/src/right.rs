//! The rights of a key.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Write records and messages, start workflow instances.
    Send,
    /// Read records and messages, use consumer groups, list resources.
    Listen,
    /// Make, change and delete hubs, queues and groups; decide about workflow instances.
    Manage,
    /// Make, change, start, stop and delete jobs and processors. A right of its own, because a job reaches files and
    /// hosts.
    Deploy,
}

impl Right {
    pub const ALL: [Right; 4] = [Right::Send, Right::Listen, Right::Manage, Right::Deploy];

    /// A client with one of these over a hub may know that it exists.
    pub const VISIBLE: &[Right] = &[Right::Listen, Right::Send, Right::Manage];

    pub fn parse(word: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| right.name() == word)
    }

    pub fn name(self) -> &'static str {
        match self {
            Right::Send => "send",
            Right::Listen => "listen",
            Right::Manage => "manage",
            Right::Deploy => "deploy",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    pub const ALL: Rights = Rights(0b1111);

    pub fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }

    /// Whether each of these rights is one of them.
    pub fn include(self, others: Rights) -> bool {
        self.0 & others.0 == others.0
    }

    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Rights {
        let bits = rights.into_iter().map(|right| 1 << right as u8);
        Rights(bits.fold(0, |all, bit| all | bit))
    }
}
