//! The settings of a queue, with Service Bus defaults where it has one.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Duration of a message or session lock.
    pub lock: Duration,
    /// A message delivered this many times without being settled is dead-lettered.
    pub deliveries_max: u32,
    /// Default and maximum time to live of a message. `None` means forever.
    pub time_to_live: Option<Duration>,
    /// Expired messages are dead-lettered instead of dropped.
    pub dead_letter_expired: bool,
    /// Messages with an id already seen within this window are dropped as duplicates.
    pub duplicates_within: Option<Duration>,
    /// Messages belong to sessions; each session is received in order by one receiver at a time. Fixed when the
    /// queue is created.
    pub sessions: bool,
    /// Maximum bytes of messages, dead letters included. All messages are also held in memory.
    pub bytes_max: u64,
    pub message_bytes_max: u32,
    /// The forwarding target of all messages.
    pub forward_to: Option<String>,
    /// The forwarding target of all dead letters.
    pub forward_dead_letters_to: Option<String>,
    /// The queue is deleted when it has not been used for this time. `None` means never.
    pub auto_delete_on_idle: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lock: Duration::from_secs(60),
            deliveries_max: 10,
            time_to_live: None,
            dead_letter_expired: false,
            duplicates_within: None,
            sessions: false,
            bytes_max: 1 << 30,
            message_bytes_max: 1 << 20,
            forward_to: None,
            forward_dead_letters_to: None,
            auto_delete_on_idle: None,
        }
    }
}

/// A setting outside its allowed range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {given}, but must be {range}")]
pub struct SettingsError {
    pub name: &'static str,
    pub given: String,
    pub range: &'static str,
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

impl Settings {
    /// Upper limit of `message_bytes_max`: a batch of the log must hold a message.
    pub(crate) const MESSAGE_BYTES_MAX: u32 = 8 << 20;

    pub fn check(&self) -> Result<(), SettingsError> {
        let must = |name, fine: bool, given: String, range| match fine {
            true => Ok(()),
            false => Err(SettingsError { name, given, range }),
        };
        let shown = |time: Option<Duration>| format!("{:?}", time.unwrap_or_default());
        must(
            "lock",
            (SECOND..=HOUR).contains(&self.lock),
            format!("{:?}", self.lock),
            "1 s to 1 h",
        )?;
        must(
            "deliveries_max",
            self.deliveries_max > 0,
            self.deliveries_max.to_string(),
            "at least 1",
        )?;
        must(
            "time_to_live",
            self.time_to_live.is_none_or(|time| time >= SECOND),
            shown(self.time_to_live),
            "at least 1 s",
        )?;
        must(
            "duplicates_within",
            (self.duplicates_within).is_none_or(|time| (20 * SECOND..=WEEK).contains(&time)),
            shown(self.duplicates_within),
            "20 s to 7 days",
        )?;
        must(
            "auto_delete_on_idle",
            self.auto_delete_on_idle
                .is_none_or(|time| time >= 5 * MINUTE),
            shown(self.auto_delete_on_idle),
            "at least 5 minutes",
        )?;
        must(
            "message_bytes_max",
            (1..=Self::MESSAGE_BYTES_MAX).contains(&self.message_bytes_max),
            self.message_bytes_max.to_string(),
            "1 B to 8 MiB",
        )?;
        must(
            "forward_to",
            !self.sessions || self.forward_to.is_none(),
            self.forward_to.clone().unwrap_or_default(),
            "absent, because the messages of sessions cannot be forwarded",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed_and_a_lock_of_no_time_is_not() {
        Settings::default().check().unwrap();
        let none = Settings {
            lock: Duration::ZERO,
            ..Settings::default()
        };
        assert_eq!(
            none.check().unwrap_err().to_string(),
            "lock is 0ns, but must be 1 s to 1 h"
        );
    }
}
