//! Data errors, summed: one record for each input and kind of error, in the form that Stream Analytics logs them.
//!
//! Violations of a time policy are there too, as information, because the policy dealt with them. The times are arrivals, so that
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
            let sum = TroubleSum {
                count: adjusted + dropped,
                ..TroubleSum::default()
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
    let troubles = input.troubles.iter().map(|(kind, sum)| {
        let first = sum.samples.first();
        let brief = first.map_or("", |trouble| &trouble.reason);
        let message = first.map_or(String::new(), Trouble::placed);
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
    policies.chain(troubles).collect()
}

struct DataErrorRecord<'a> {
    kind: &'a str,
    code: &'a str,
    level: &'a str,
    brief: &'a str,
    message: &'a str,
    sum: &'a TroubleSum,
}

impl DataErrorRecord<'_> {
    fn to_json(&self, input: &str) -> Value {
        let samples = self.sum.samples.iter();
        let samples = samples.map(|trouble| trouble.sample.trim_end());
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
