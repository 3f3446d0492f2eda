//! The retry decision for a failed attempt of a step or of its undo.

use std::time::Duration;

use highwater_retry::RetryDecision;

use crate::call::{self, CallError, CallErrorKind};
use crate::machine::{AttemptSpan, FailureKind, Instance};

/// Longer reasons are cut.
const REASON_CHARS_MAX: usize = 400;

/// Whether the attempt is retried, and when; and the reason to journal.
pub(super) fn retry_or_give_up(
    instance: &Instance,
    attempt: &AttemptSpan,
    error: CallError,
    random: u64,
) -> (FailureKind, String) {
    let AttemptSpan { undo, at_ms, .. } = *attempt;
    let number = usize::from(attempt.step);
    let progress = instance.progress(number, undo);
    let shortened: String = error.reason.chars().take(REASON_CHARS_MAX).collect();
    let retry_after = match error.kind {
        CallErrorKind::Permanent => return (FailureKind::Final, shortened),
        CallErrorKind::Refused => return (FailureKind::Refused, shortened),
        CallErrorKind::Transient { retry_after } => retry_after,
    };
    let Some(work) = call::work(instance, number, undo) else {
        return (FailureKind::Final, shortened);
    };
    let first_ms = match progress.tries {
        0 => attempt.begun_ms,
        _ => progress.begun_ms,
    };
    let since = Duration::from_millis(u64::try_from(at_ms - first_ms).unwrap_or(0));
    let tries = progress.tries + 1;
    match work.retry.policy().next(tries, since, retry_after, random) {
        RetryDecision::After(delay) => {
            let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
            let due_ms = at_ms.saturating_add(delay_ms);
            (FailureKind::Retry { due_ms }, shortened)
        }
        RetryDecision::GiveUp(why) => (FailureKind::Final, format!("{shortened} ({why})")),
    }
}
