//! Where a reader starts: the selector filter of its link.
//!
//! Event Hubs clients write `amqp.annotation.x-opt-offset > '42'`, with `>=` to include the event itself. Offsets and
//! sequence numbers are both the offset of the record.

use highwater_amqp::{AmqpError, Value};
use highwater_log::{EnqueueTime, Isolation, Offset, Partition};

use super::error::{ARGUMENT_ERROR, read_error};

/// Readers see the events of committed transactions only, as those of HTTP.
pub(super) const ISOLATION: Isolation = Isolation::Committed;

const FILTER: &str = "apache.org:selector-filter:string";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartPosition {
    Earliest,
    Latest,
    /// At this offset.
    Offset(i64),
    /// Events that were enqueued at this time or later, in milliseconds since 1970.
    Time(i64),
}

impl StartPosition {
    /// The position in the filters of a source; the earliest event without one.
    pub(super) fn of_filter(filter: Option<&Value<'_>>) -> Result<StartPosition, AmqpError> {
        let Some(selector) = filter.and_then(|filter| filter.get(FILTER)) else {
            return Ok(StartPosition::Earliest);
        };
        let text = selector.undescribed().as_text().unwrap_or_default();
        StartPosition::parse(text).ok_or_else(|| {
            let text: String = text.chars().take(200).collect();
            let description = format!("The filter `{text}` is not understood.");
            AmqpError::new(ARGUMENT_ERROR, description)
        })
    }

    fn parse(selector: &str) -> Option<StartPosition> {
        let selector = selector.trim().strip_prefix("amqp.annotation.")?;
        let (name, rest) = selector.split_at(selector.find(['>', ' '])?);
        let rest = rest.trim_start().strip_prefix('>')?;
        let (inclusive, rest) = match rest.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let value = rest.trim().trim_matches('\'');
        let after = |number: i64| match inclusive {
            true => number,
            false => number.saturating_add(1),
        };
        match (name, value) {
            ("x-opt-offset", "@latest") => Some(StartPosition::Latest),
            ("x-opt-offset" | "x-opt-sequence-number", number) => number
                .parse()
                .ok()
                .map(|number| StartPosition::Offset(after(number))),
            ("x-opt-enqueued-time" | "x-opt-enqueuedtimeutc", number) => number
                .parse()
                .ok()
                .map(|number| StartPosition::Time(after(number))),
            _ => None,
        }
    }

    /// The offset to read from, and the time before which events are skipped.
    pub(super) async fn resolve(
        self,
        partition: &dyn Partition,
    ) -> Result<(Offset, Option<EnqueueTime>), AmqpError> {
        let bounds = partition.bounds();
        let end = bounds.visible(ISOLATION);
        match self {
            StartPosition::Earliest => Ok((bounds.start, None)),
            StartPosition::Latest => Ok((end, None)),
            StartPosition::Offset(offset) if offset > end.0 => {
                let last = end.0 - 1;
                let description = format!(
                    "The supplied offset '{}' is invalid. The last offset in the system is '{last}'.",
                    offset - 1
                );
                Err(AmqpError::new(ARGUMENT_ERROR, description))
            }
            // Events before the start were deleted.
            StartPosition::Offset(offset) => Ok((Offset(offset).max(bounds.start), None)),
            StartPosition::Time(time) => {
                let time = EnqueueTime(time);
                let found = partition.offset_for_time(time).await;
                let found = found.map_err(|error| read_error(&error))?;
                Ok((found.map_or(end, |(offset, _)| offset), Some(time)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves A1
    #[test]
    fn the_selectors_of_clients_are_understood() {
        let cases = [
            (
                "amqp.annotation.x-opt-offset > '-1'",
                StartPosition::Offset(0),
            ),
            (
                "amqp.annotation.x-opt-offset >= '0'",
                StartPosition::Offset(0),
            ),
            (
                "amqp.annotation.x-opt-offset > '@latest'",
                StartPosition::Latest,
            ),
            (
                "amqp.annotation.x-opt-sequence-number > '5'",
                StartPosition::Offset(6),
            ),
            (
                "amqp.annotation.x-opt-sequence-number >= '5'",
                StartPosition::Offset(5),
            ),
            (
                "amqp.annotation.x-opt-enqueued-time > '1700000000000'",
                StartPosition::Time(1_700_000_000_001),
            ),
        ];
        for (text, position) in cases {
            assert_eq!(StartPosition::parse(text), Some(position), "{text}");
        }
        for text in [
            "",
            "x-opt-offset > 1",
            "amqp.annotation.x-opt-offset",
            "amqp.annotation.x-opt-offset < '1'",
            "amqp.annotation.other > '1'",
        ] {
            assert_eq!(StartPosition::parse(text), None, "{text}");
        }
    }
}
