//! Data errors of a run: one record per input and kind of error, in the form of a Stream Analytics log.
//!
//! Violations of a time policy are included with the level Info, because the policy handled them. Times are arrival
//! times, so that the records do not depend on when or how fast the job ran; unknown ones are null.

use highwater_time::Instant;
use serde_json::{Value, json};

use crate::report::{InputErrorSample, InputErrorSummary, InputReport};

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
            let sum = InputErrorSummary {
                count: adjusted + dropped,
                ..InputErrorSummary::default()
            };
            let error = DataErrorRecord {
                kind,
                code,
                level: "Info",
                brief: &message,
                message: &message,
                sum: &sum,
            };
            error.to_json(&input.name)
        });
    let errors = input.errors.iter().map(|(kind, sum)| {
        let first = sum.samples.first();
        let brief = first.map_or("", |sample| &sample.reason);
        let message = first.map_or(String::new(), InputErrorSample::located);
        let error = DataErrorRecord {
            kind: kind.name(),
            code: kind.code(),
            level: "Warning",
            brief,
            message: &message,
            sum,
        };
        error.to_json(&input.name)
    });
    policies.chain(errors).collect()
}

struct DataErrorRecord<'a> {
    kind: &'a str,
    code: &'a str,
    level: &'a str,
    brief: &'a str,
    message: &'a str,
    sum: &'a InputErrorSummary,
}

impl DataErrorRecord<'_> {
    fn to_json(&self, input: &str) -> Value {
        let samples = self.sum.samples.iter();
        let samples = samples.map(|sample| sample.event.trim_end());
        let time = |pick: fn(&(Instant, Instant)) -> Instant| {
            let arrivals = self.sum.arrivals.as_ref();
            arrivals.map(|arrivals| pick(arrivals).to_string())
        };
        json!({
            "Source": input,
            "Type": "DataError",
            "DataErrorType": self.kind,
            "Level": self.level,
            "BriefMessage": self.brief,
            "Message": self.message,
            "ExampleEvents": samples.filter(|sample| !sample.is_empty()).collect::<Vec<_>>(),
            "FromTimestamp": time(|(first, _)| *first),
            "ToTimestamp": time(|(_, last)| *last),
            "EventCount": self.sum.count,
            "ErrorCode": self.code,
            "ErrorCategory": "Diagnostic",
        })
    }
}
