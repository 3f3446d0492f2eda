//! Identifiers of records and producers. Each is a type of its own, so that an offset cannot be mistaken for a time.

use std::fmt;
use std::sync::Arc;

/// The position of a record in its partition, starting at 0. Markers of transactions and compacted records leave gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When the log appended a record, in milliseconds since 1970. Never decreases within a partition, even if the clock
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnqueueTime(pub i64);

impl fmt::Display for EnqueueTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a hub: 1 to 249 letters, digits, dots, dashes and underscores, but neither `.` nor `..`, so that it is
/// valid as a folder and as a Kafka topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubName(Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot name a hub: use 1 to 249 letters, digits, dots, dashes and underscores, and neither `.` nor `..`"
)]
pub struct HubNameError(pub String);

impl HubName {
    pub(crate) const LENGTH_MAX: usize = 249;

    pub fn new(name: &str) -> Result<HubName, HubNameError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let well_formed = (1..=Self::LENGTH_MAX).contains(&name.len())
            && name.bytes().all(plain)
            && !matches!(name, "." | "..");
        match well_formed {
            true => Ok(HubName(name.into())),
            false => Err(HubNameError(name.chars().take(Self::LENGTH_MAX).collect())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub const INTERNAL_PREFIX: &'static str = "__";

    /// Hubs of the node itself, such as committed offsets; clients may not write to them.
    pub fn is_internal(&self) -> bool {
        HubName::is_internal_name(&self.0)
    }

    /// The same for a name that a client sent, which may be no valid one.
    pub fn is_internal_name(name: &str) -> bool {
        name.starts_with(HubName::INTERNAL_PREFIX)
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::borrow::Borrow<str> for HubName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Identifies a hub for its lifetime; a hub created again under the same name has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubId(pub [u8; 16]);

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One partition of one hub.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub hub: HubName,
    pub partition: u32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hub, self.partition)
    }
}

/// A producer that numbers its batches, so that repeats are recognized. A higher epoch fences lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_leave_its_folder_is_refused() {
        for name in ["", ".", "..", "a/b", "a\\b", "ä", "a b", &"x".repeat(250)] {
            assert!(HubName::new(name).is_err(), "{name}");
        }
        for name in ["a", "Toll-Booth_1.raw", "...", &"x".repeat(249)] {
            assert_eq!(HubName::new(name).unwrap().as_str(), name);
        }
    }
}
