//! An endpoint that keeps rows by their numbers and does not accept two rows for one number.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use highwater_connect::json::JsonWriter;
use highwater_connect::{Endpoint, EndpointError, EndpointFuture, Rows};
use highwater_env::random::Random;
use highwater_job::live::{EndpointRequest, Endpoints};
use highwater_time::Instant;
use tokio::sync::watch;

/// The rows that all endpoints of a test have accepted. Survives the jobs that write to it.
#[derive(Clone)]
pub(crate) struct Recorder {
    kept: Arc<Mutex<Kept>>,
    /// How many writes and advances there were.
    calls: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Kept {
    outputs: BTreeMap<Key, Recorded>,
    /// The answer to every call, if it is no success.
    failure: Option<EndpointError>,
    faults: Vec<String>,
    refused: Option<(u64, String)>,
}

/// Output, refused by, epoch.
pub(crate) type Key = (String, Option<String>, u64);

/// The time of a row, and the row.
type Row = (Instant, String);

/// A row with its output and number.
pub(crate) type Numbered = (Key, u64, Row);

#[derive(Default)]
struct Recorded {
    /// In their place for ever.
    rows: BTreeMap<u64, Row>,
    /// Taken since the last settlement: a crash may lose some of them.
    loose: BTreeMap<u64, Row>,
    watermark: Option<Instant>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            kept: Arc::default(),
            calls: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Recorder {
    /// The rows of an output, in order.
    pub(crate) fn rows(&self, output: &str) -> Vec<String> {
        let kept = self.kept.lock().unwrap();
        assert_eq!(kept.faults, [""; 0], "the endpoint was told nonsense");
        let mut rows = Vec::new();
        for (_, recorded) in kept.outputs.iter().filter(|(key, _)| key.0 == output) {
            let all = recorded.rows.iter().chain(&recorded.loose);
            rows.extend(all.map(|(_, (_, row))| row.clone()));
        }
        rows
    }

    /// Everything that is there, with numbers.
    pub(crate) fn everything(&self) -> Vec<Numbered> {
        let kept = self.kept.lock().unwrap();
        assert_eq!(kept.faults, [""; 0], "the endpoint was told nonsense");
        let rows = kept.outputs.iter().flat_map(|(key, recorded)| {
            let all = recorded.rows.iter().chain(&recorded.loose);
            all.map(|(number, row)| (key.clone(), *number, row.clone()))
        });
        rows.collect()
    }

    fn watermark(&self, output: &str) -> Option<Instant> {
        let kept = self.kept.lock().unwrap();
        let mut found = kept.outputs.iter().filter(|(key, _)| key.0 == output);
        found.next().and_then(|(_, recorded)| recorded.watermark)
    }

    fn heard(&self) {
        self.calls.send_modify(|calls| *calls += 1);
    }

    /// Ready when the output has that many rows.
    pub(crate) async fn until(&self, output: &str, rows: usize) -> Vec<String> {
        let mut calls = self.calls.subscribe();
        loop {
            let found = self.rows(output);
            if found.len() >= rows {
                return found;
            }
            calls.changed().await.unwrap();
        }
    }

    /// Ready when all rows of the output before this time have been handed over.
    pub(crate) async fn until_time(&self, output: &str, time: Instant) {
        let mut calls = self.calls.subscribe();
        while self
            .watermark(output)
            .is_none_or(|watermark| watermark < time)
        {
            calls.changed().await.unwrap();
        }
    }

    /// Ready after that many more writes and advances.
    pub(crate) async fn after_calls(&self, more: u64) {
        let mut calls = self.calls.subscribe();
        let until = *calls.borrow() + more;
        calls.wait_for(|calls| *calls >= until).await.unwrap();
    }

    /// Every call fails, or none does any more.
    pub(crate) fn fail(&self, with: Option<EndpointError>) {
        self.kept.lock().unwrap().failure = with;
    }

    /// Row number `row` of the output `out` is never taken.
    pub(crate) fn refuse(&self, row: u64, reason: &str) {
        self.kept.lock().unwrap().refused = Some((row, reason.to_owned()));
    }

    /// Loses rows that were not settled, from some row on.
    pub(crate) fn crash(&self, random: &mut Random) {
        for recorded in self.kept.lock().unwrap().outputs.values_mut() {
            let keep = random.below(recorded.loose.len() as u64 + 1) as usize;
            let kept = std::mem::take(&mut recorded.loose).into_iter().take(keep);
            recorded.rows.extend(kept);
        }
    }
}

impl Endpoints for Recorder {
    fn open(&self, request: &EndpointRequest<'_>) -> Result<Box<dyn Endpoint>, EndpointError> {
        let refused_by = request.refused_by.map(str::to_owned);
        let output = match request.shard {
            None => request.output.to_owned(),
            Some(shard) => format!("{}#{}", request.output, shard.number),
        };
        Ok(Box::new(Recording {
            recorder: self.clone(),
            key: (output, refused_by, request.epoch),
            writer: JsonWriter::new(request.names.to_vec()),
            next: None,
        }))
    }
}

struct Recording {
    recorder: Recorder,
    key: Key,
    writer: JsonWriter,
    /// The number that comes next.
    next: Option<u64>,
}

impl Recording {
    fn with<T>(
        &mut self,
        act: impl FnOnce(&mut Recorded, &mut Vec<String>) -> T,
    ) -> Result<T, EndpointError> {
        let mut kept = self.recorder.kept.lock().unwrap();
        if let Some(failure) = kept.failure.clone() {
            return Err(failure);
        }
        let Kept {
            outputs, faults, ..
        } = &mut *kept;
        Ok(act(outputs.entry(self.key.clone()).or_default(), faults))
    }
}

impl Endpoint for Recording {
    fn resume<'a>(&'a mut self, mark: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        let mark = mark.map(|mark| u64::from_le_bytes(mark.try_into().unwrap()));
        self.next = mark;
        let resumed = self.with(|recorded, faults| {
            let there = recorded.rows.keys().next_back().map_or(0, |last| last + 1);
            if there < mark.unwrap_or(0) {
                faults.push(format!("{there} rows are there, the mark says {mark:?}"));
            }
        });
        Box::pin(std::future::ready(resumed))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()> {
        if let Some((row, reason)) = self.recorder.kept.lock().unwrap().refused.clone()
            && self.key.0 == "out"
            && (rows.first..rows.end()).contains(&row)
        {
            let rows = vec![row];
            let refused = Err(EndpointError::Refused { rows, reason });
            return Box::pin(std::future::ready(refused));
        }
        let mut bytes = Vec::new();
        self.writer.write(&rows.chunk, &mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let next = self.next;
        let written = self.with(|recorded, faults| {
            match next {
                // Some endpoints find out by their first checkpoint which rows they have written.
                None => faults.push("rows came before the first settlement".into()),
                Some(next) if next > rows.first => {
                    faults.push(format!("row {} came where {next} was due", rows.first));
                }
                Some(_) => {}
            }
            for (row, line) in text.lines().enumerate() {
                let number = rows.first + row as u64;
                let row = (rows.chunk.time(row), line.to_owned());
                let known = recorded.rows.get(&number).or(recorded.loose.get(&number));
                match known {
                    Some(known) if *known != row => {
                        faults.push(format!("row {number} was {known:?} and is {row:?}"));
                    }
                    Some(_) => {}
                    None => drop(recorded.loose.insert(number, row)),
                }
            }
        });
        if written.is_ok() {
            self.next = Some(rows.end());
        }
        self.recorder.heard();
        Box::pin(std::future::ready(written))
    }

    fn advance(&mut self, watermark: Instant) -> EndpointFuture<'_, ()> {
        let advanced = self.with(|recorded, _| recorded.watermark = Some(watermark));
        self.recorder.heard();
        Box::pin(std::future::ready(advanced))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        let settled = self.with(|recorded, _| {
            let loose = std::mem::take(&mut recorded.loose);
            recorded.rows.extend(loose);
        });
        let next = *self.next.get_or_insert(0);
        let mark = settled.map(|()| next.to_le_bytes().to_vec());
        Box::pin(std::future::ready(mark))
    }
}
