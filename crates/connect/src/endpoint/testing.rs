//! Shared by the tests of endpoints: rows, and a job that crashes.

use std::future::Future;

use highwater_engine::{Chunk, Column, ColumnBuilder, Value};
use highwater_query::plan::Name;
use highwater_time::Instant;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Endpoint, EndpointError, Rows};

pub(super) const START: &str = "2026-03-01T23:58:00Z";

/// A row: seconds since [`START`], a device or NULL, and a text.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub seconds: i64,
    pub device: Option<i64>,
    pub text: String,
}

impl Row {
    pub(super) fn time(&self) -> Instant {
        let start = Instant::parse_iso(START.as_bytes()).unwrap();
        start + highwater_time::Duration::from_secs(self.seconds)
    }
}

pub(super) fn names() -> Vec<Name> {
    ["Device", "Text", "At"]
        .map(|name| Name::Field(name.into()))
        .into()
}

pub(super) fn rows(first: u64, rows: &[Row]) -> Rows {
    let column = |values: Vec<Value>| -> Column {
        let mut builder = ColumnBuilder::with_capacity(values.len());
        values
            .into_iter()
            .for_each(|value| builder.push_owned(value));
        builder.finish()
    };
    let times: Vec<i64> = rows.iter().map(|row| row.time().ticks()).collect();
    let devices = rows
        .iter()
        .map(|row| row.device.map_or(Value::Null, Value::Int));
    let columns = vec![
        column(devices.collect()),
        column(rows.iter().map(|row| Value::text(&row.text)).collect()),
        Column::from_times(times.clone().into()),
    ];
    Rows {
        first,
        chunk: Chunk::new(times.into(), columns),
    }
}

/// Rows in the order of their times.
pub(super) fn any_rows(count: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (0..60i64, prop::option::of(0..5i64), "[a-z\n\"/ ä]{0,6}");
    vec(row, 0..count).prop_map(|rows| {
        let mut seconds = 0;
        let row = |(later, device, text)| {
            seconds += later;
            Row {
                seconds,
                device,
                text,
            }
        };
        rows.into_iter().map(row).collect()
    })
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Writes this many rows.
    Write(usize),
    /// Advances the watermark to the time of the next row.
    Advance,
    Settle,
    /// Resumes from the last checkpoint with a new endpoint.
    Crash,
}

pub(super) fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..20usize).prop_map(Step::Write),
        1 => Just(Step::Advance),
        1 => Just(Step::Settle),
        1 => Just(Step::Crash),
    ];
    vec(step, 0..30)
}

/// Runs the steps, then writes the remaining rows and ends. Retries what is unavailable; drops refused rows and returns
/// their numbers.
pub(super) async fn play(
    input: &[Row],
    steps: &[Step],
    mut open: impl FnMut() -> Box<dyn Endpoint>,
) -> Vec<u64> {
    let mut job = Job {
        input,
        at: 0,
        refused: Vec::new(),
    };
    let mut endpoint = open();
    insist(async |endpoint| endpoint.resume(None).await, &mut endpoint).await;
    let mut state = (settled(&mut endpoint).await, 0);
    for step in steps {
        match step {
            Step::Write(count) => job.write(&mut endpoint, *count).await,
            Step::Advance => job.advance(&mut endpoint).await,
            Step::Settle => state = (settled(&mut endpoint).await, job.at),
            Step::Crash => {
                endpoint = open();
                let bytes = &state.0[..];
                insist(
                    async |endpoint| endpoint.resume(Some(bytes)).await,
                    &mut endpoint,
                )
                .await;
                job.at = state.1;
            }
        }
    }
    job.write(&mut endpoint, input.len()).await;
    job.advance(&mut endpoint).await;
    settled(&mut endpoint).await;
    job.refused.sort();
    job.refused.dedup();
    job.refused
}

struct Job<'a> {
    input: &'a [Row],
    at: usize,
    refused: Vec<u64>,
}

impl Job<'_> {
    async fn write(&mut self, endpoint: &mut Box<dyn Endpoint>, count: usize) {
        let end = (self.at + count).min(self.input.len());
        while self.at < end {
            let given = rows(self.at as u64, &self.input[self.at..end]);
            match retry(async |endpoint| endpoint.write(&given).await, endpoint).await {
                Ok(()) => self.at = end,
                Err(EndpointError::Refused { rows, .. }) => {
                    // Writes the rows before the first refused one again, then those after it.
                    let first = rows[0] as usize;
                    if first > self.at {
                        Box::pin(self.write(endpoint, first - self.at)).await;
                    }
                    self.refused.push(rows[0]);
                    self.at = first + 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn advance(&mut self, endpoint: &mut Box<dyn Endpoint>) {
        let next = self.input.get(self.at);
        let watermark = next.map_or(Instant::AFTER_ALL, Row::time);
        insist(async |endpoint| endpoint.advance(watermark).await, endpoint).await;
    }
}

async fn settled(endpoint: &mut Box<dyn Endpoint>) -> Vec<u8> {
    insist(async |endpoint| endpoint.checkpoint().await, endpoint).await
}

async fn insist<T>(
    ask: impl AsyncFn(&mut Box<dyn Endpoint>) -> Result<T, EndpointError>,
    endpoint: &mut Box<dyn Endpoint>,
) -> T {
    match retry(ask, endpoint).await {
        Ok(done) => done,
        Err(error) => panic!("{error}"),
    }
}

async fn retry<T>(
    ask: impl AsyncFn(&mut Box<dyn Endpoint>) -> Result<T, EndpointError>,
    endpoint: &mut Box<dyn Endpoint>,
) -> Result<T, EndpointError> {
    for _ in 0..1000 {
        match ask(endpoint).await {
            Err(EndpointError::Unavailable { .. }) => {}
            answer => return answer,
        }
    }
    panic!("it never became available");
}

pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}
