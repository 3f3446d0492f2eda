//! The fate of one event of a live job.

use highwater_job::live::{FateBasis, FateError, Handle, SessionSpan};
use highwater_log::{Offset, Partition};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::handle_of;
use crate::http::app::App;
use crate::http::decode;
use crate::http::dispatch::ApiRequest;
use crate::http::error::{Code, Error};
use crate::http::json::write_record;
use crate::http::read::{ISOLATION, partition_of};
use crate::http::reply::{self, Reply};
use crate::http::verdict::{millis, verdict_fields};
use crate::text::percent_decode;

/// The memory of a replay.
const REPLAY_BYTES: usize = 4 << 20;

pub(in crate::http) async fn event_fate(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let handle = handle_of(&request)?;
    let [_, input, partition, offset] = request.variables();
    let input = input_index(&handle, &percent_decode(input))?;
    let hint = "such as /api/jobs/tolls/events/Entry/1/88213";
    let number = |text: &str, what: &str| {
        let parsed = text
            .parse::<u32>()
            .map(i64::from)
            .or_else(|_| text.parse::<i64>());
        let parsed = parsed.ok().filter(|number| *number >= 0);
        parsed.ok_or_else(|| Error::bad(format!("`{text}` is no {what}"), hint))
    };
    let (partition, offset) = (number(partition, "partition")?, number(offset, "offset")?);
    let app = request.app;
    let _share = app.budget.try_take(REPLAY_BYTES)?;
    let fate = handle.event_fate(input, partition as usize, Offset(offset));
    let fate = fate.await?;
    let windows = fate.windows.iter();
    let windows = windows.map(|(start, end)| json!({"start": millis(*start), "end": millis(*end)}));
    let mut shown = json!({
        "input": handle.job().plan.inputs[input].name,
        "hub": fate.place.hub.as_str(),
        "partition": partition,
        "offset": offset,
    });
    if let Some(shown) = shown.as_object_mut() {
        verdict_fields(fate.judged.as_ref(), shown);
        shown.insert("substream".into(), fate.substream.into());
        shown.insert("windows".into(), windows.collect());
        shown.insert("has_sessions".into(), fate.has_sessions.into());
        if let Some(sessions) = &fate.sessions {
            let windows = sessions.windows.iter();
            shown.insert("sessions".into(), windows.map(session_fields).collect());
            shown.insert("sessions_exact".into(), sessions.is_exact.into());
        }
        shown.insert("reason".into(), fate.reason.into());
        shown.insert("source".into(), basis(fate.basis).into());
    }
    let hub = app.hub(fate.place.hub.as_str())?;
    let stored = partition_of(app, &hub, fate.place.partition)?;
    let record = record(app, &*stored, fate.offset).await?;
    Ok(reply::ok(&joined(&shown, &record)?))
}

/// An input by its index or its name.
fn input_index(handle: &Handle, text: &str) -> Result<usize, Error> {
    let inputs = &handle.job().plan.inputs;
    let named = |name: &String| name.eq_ignore_ascii_case(text);
    let named = inputs.iter().position(|input| named(&input.name));
    let index = named.or_else(|| text.parse().ok().filter(|index| *index < inputs.len()));
    index.ok_or_else(|| {
        let names: Vec<&str> = inputs.iter().map(|input| &input.name[..]).collect();
        let hint = format!("its inputs are {}", names.join(", "));
        Error::not_found(format!("the job has no input `{text}`"), hint)
    })
}

fn session_fields(session: &SessionSpan) -> Value {
    json!({
        "start": millis(session.start),
        "end": millis(session.end),
        "state": if session.is_open { "open" } else { "closed" },
    })
}

fn basis(basis: FateBasis) -> &'static str {
    match basis {
        FateBasis::Sample => "sample",
        FateBasis::Replay => "replay",
        FateBasis::PartialReplay => "partial replay",
    }
}

/// The record as the hub has it.
async fn record(app: &App, partition: &dyn Partition, offset: Offset) -> Result<Vec<u8>, Error> {
    let fetched = partition.read(offset, 1, ISOLATION).await?;
    let mut json = Vec::new();
    let number = partition.topic_partition().partition;
    decode::records(&fetched, offset, &app.unpack_budget, |record| {
        if record.offset == offset {
            write_record(&mut json, None, number, record);
        }
        false
    })?;
    match json.is_empty() {
        false => Ok(json),
        true => {
            let message = format!("offset {offset} has no event");
            let hint = "it is of a punctuation, or of an aborted transaction";
            Err(Error::not_found(message, hint))
        }
    }
}

/// The fate with `key`, `headers` and `value` of the record, which stay as they were sent.
fn joined(fate: &Value, record: &[u8]) -> Result<Box<RawValue>, Error> {
    let broken = |error: serde_json::Error| {
        let message = format!("the record is no JSON: {error}");
        Error::new(Code::Internal, message, "this is a bug: please report it")
    };
    let record: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(record).map_err(broken)?;
    let mut text = fate.to_string();
    text.pop();
    for name in ["key", "headers", "value", "value_base64"] {
        if let Some(value) = record.get(name) {
            text.push_str(&format!(",\"{name}\":{value}"));
        }
    }
    text.push('}');
    RawValue::from_string(text).map_err(broken)
}

impl From<FateError> for Error {
    fn from(error: FateError) -> Error {
        match error {
            FateError::Read(error) => error.into(),
            FateError::NoPartition => {
                let hint = "GET /api/jobs/NAME lists its inputs and their partitions";
                Error::not_found(error.to_string(), hint)
            }
            FateError::NotYet => {
                let hint = "`next` of the partition in GET /api/jobs/NAME is the next one";
                Error::not_found(error.to_string(), hint)
            }
            FateError::Damaged(_) => {
                let hint = "see the log of the node";
                Error::new(Code::Stopped, error.to_string(), hint)
            }
        }
    }
}
