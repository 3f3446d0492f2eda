//! The verdict of an event as JSON: the same fields in samples, fates and the playground.

use highwater_time::{Instant, JudgedEvent, Verdict, Violation};
use serde_json::{Map, Value};

/// Milliseconds since 1970; `None` before the first event and after the last.
pub(super) fn millis(time: Instant) -> Option<i64> {
    time.is_in_calendar().then(|| time.to_unix_millis())
}

/// The verdict for programs; whether the event was adjusted or dropped is beside it.
pub(super) fn verdict_name(verdict: Verdict) -> &'static str {
    let out_of_order = verdict.violates(Violation::OutOfOrder);
    match (
        verdict.violates(Violation::Late),
        verdict.violates(Violation::Early),
        out_of_order,
    ) {
        (true, _, true) => "late_and_out_of_order",
        (true, _, false) => "late",
        (_, true, true) => "early_and_out_of_order",
        (_, true, false) => "early",
        (_, _, true) => "out_of_order",
        (_, _, false) => "on_time",
    }
}

/// Adds times, verdict and watermark; `None` for an event that was lost before it got a time.
pub(super) fn verdict_fields(judged: Option<&JudgedEvent>, out: &mut Map<String, Value>) {
    let mut put = |name: &str, value: Value| out.insert(name.to_owned(), value);
    let time = |pick: fn(&JudgedEvent) -> Option<Instant>| judged.and_then(pick).and_then(millis);
    put("arrived", time(|judged| judged.arrival).into());
    put("happened", time(|judged| Some(judged.event_time)).into());
    put("timestamp", time(|judged| judged.timestamp).into());
    let verdict = judged.map(|judged| judged.verdict);
    put("verdict", verdict.map_or("lost", verdict_name).into());
    put("text", verdict.map_or("lost", Verdict::name).into());
    put(
        "dropped",
        verdict.is_none_or(|verdict| !verdict.kept()).into(),
    );
    put(
        "watermark",
        time(|judged| Some(judged.watermark_before)).into(),
    );
}
