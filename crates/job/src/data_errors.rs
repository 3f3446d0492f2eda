//! Data errors, summed: one record for each input and kind of trouble, in the form that Stream Analytics logs them.
//!
//! What broke a time policy is there too, as information, because a policy dealt with it. The times are arrivals, so that
//! nothing here depends on when or how fast the job ran; where no arrival is known they are null.

use highwater_time::Instant;
use serde_json::{Value, json};

use crate::report::{InputReport, Trouble, TroubleSum};

/// The data errors of one input, the policies' first.
pub fn data_errors(input: &InputReport) -> Vec<Value> {
    let time = &input.time;
    let policies = [
        (
            "LateInputEvent",
            "InputEventLateBeyondThreshold",
            time.late_adjusted,
            time.late_dropped,
        ),
        (
            "EarlyInputEvent",
            "InputEventEarlyBeyondThreshold",
            time.early_adjusted,
            time.early_dropped,
        ),
        (
            "OutOfOrderEvent",
            "OutOfOrderEvent",
            time.out_of_order_adjusted,
            time.out_of_order_dropped,
        ),
    ];
    let policies = policies
        .into_iter()
        .filter(|(.., adjusted, dropped)| adjusted + dropped > 0)
        .map(|(kind, code, adjusted, dropped)| {
            let message = format!("{adjusted} adjusted, {dropped} dropped");
            record(
                input,
                (kind, code, "Info"),
                (&message, &message),
                &TroubleSum {
                    count: adjusted + dropped,
                    ..TroubleSum::default()
                },
            )
        });
    let troubles = input.troubles.iter().map(|(kind, sum)| {
        let first = sum.samples.first();
        let brief = first.map_or("", |trouble| &trouble.reason);
        let message = first.map_or(String::new(), Trouble::placed);
        record(
            input,
            (kind.name(), kind.code(), "Warning"),
            (brief, &message),
            sum,
        )
    });
    policies.chain(troubles).collect()
}

fn record(
    input: &InputReport,
    (kind, code, level): (&str, &str, &str),
    (brief, message): (&str, &str),
    sum: &TroubleSum,
) -> Value {
    let samples = sum.samples.iter().map(|trouble| trouble.sample.trim_end());
    let time = |pick: fn(&(Instant, Instant)) -> Instant| {
        sum.arrivals
            .as_ref()
            .map(|arrivals| pick(arrivals).to_string())
    };
    json!({
        "Source": input.name,
        "Type": "DataError",
        "DataErrorType": kind,
        "Level": level,
        "BriefMessage": brief,
        "Message": message,
        "ExampleEvents": samples.filter(|sample| !sample.is_empty()).collect::<Vec<_>>(),
        "FromTimestamp": time(|(first, _)| *first),
        "ToTimestamp": time(|(_, last)| *last),
        "EventCount": sum.count,
        "ErrorCode": code,
        "ErrorCategory": "Diagnostic",
    })
}
