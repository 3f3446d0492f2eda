//! The events of a circuit and their text format on a log.

use std::fmt;
use std::str::FromStr;

use super::OutcomeCounts;

/// An event. Its text is `outcomes OK FAILED`, `tripped WHY`, `opened WHY` or `closed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CircuitEvent {
    /// Outcomes of deliveries.
    Outcomes(OutcomeCounts),
    /// An outage that counting does not detect. Opens the circuit as outcomes do.
    Tripped { why: String },
    /// Opened manually.
    Opened { why: String },
    /// Closed manually.
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a circuit event")]
pub struct CircuitEventError(pub String);

impl fmt::Display for CircuitEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CircuitEvent::Outcomes(tally) => write!(f, "outcomes {} {}", tally.ok, tally.failed),
            CircuitEvent::Tripped { why } => write!(f, "tripped {why}"),
            CircuitEvent::Opened { why } => write!(f, "opened {why}"),
            CircuitEvent::Closed => f.write_str("closed"),
        }
    }
}

impl FromStr for CircuitEvent {
    type Err = CircuitEventError;

    fn from_str(text: &str) -> Result<CircuitEvent, CircuitEventError> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let event = match word {
            "outcomes" => tally(rest).map(CircuitEvent::Outcomes),
            "tripped" => Some(CircuitEvent::Tripped { why: rest.into() }),
            "opened" => Some(CircuitEvent::Opened { why: rest.into() }),
            "closed" if rest.is_empty() => Some(CircuitEvent::Closed),
            _ => None,
        };
        event.ok_or_else(|| CircuitEventError(text.chars().take(100).collect()))
    }
}

fn tally(text: &str) -> Option<OutcomeCounts> {
    let (ok, failed) = text.split_once(' ')?;
    let (ok, failed) = (ok.parse().ok()?, failed.parse().ok()?);
    Some(OutcomeCounts { ok, failed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_are_lines_that_people_can_read() {
        let tally = OutcomeCounts { ok: 3, failed: 5 };
        assert_eq!(CircuitEvent::Outcomes(tally).to_string(), "outcomes 3 5");
        let why = "release of the billing service".into();
        let opened = CircuitEvent::Opened { why };
        assert_eq!(opened.to_string(), "opened release of the billing service");
        assert_eq!(CircuitEvent::Closed.to_string(), "closed");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "outcomes",
            "outcomes 1",
            "outcomes 1 -1",
            "closed now",
            "Closed",
        ] {
            assert_eq!(
                text.parse::<CircuitEvent>(),
                Err(CircuitEventError(text.into()))
            );
        }
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(ok: u32, failed: u32, why: String) {
            let tally = OutcomeCounts { ok, failed };
            let (tripped, opened) = (
                CircuitEvent::Tripped { why: why.clone() },
                CircuitEvent::Opened { why },
            );
            for event in [CircuitEvent::Outcomes(tally), tripped, opened, CircuitEvent::Closed] {
                prop_assert_eq!(event.to_string().parse(), Ok(event));
            }
        }
    }
}
