//! The targets: each takes any bytes and panics if something that must hold does not.
//!
//! Each gives back a number that says what kind of input it was, so that a fuzzer which cannot watch the code can tell
//! when it has seen something new.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use highwater_codec::Reader;
use highwater_connect::json::{Batch, DecodedBatch, Decoder, Field};
use highwater_connect::{CsvFormat, Format, SourceOptions, open};
use highwater_engine::{
    Chunk, ColumnBuilder, Item, PhysicalPlan, Pipeline, Record, SharedPipeline, Value, eval,
};
use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_hub::{groups, transactions};
use highwater_job::config::JobFile;
use highwater_kafka::{AllowAll, FixedSettings, Options, Services, serve};
use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog};
use highwater_query::plan::Plan;
use highwater_query::{
    Catalog, CatalogInput, CompiledQuery, Diagnostic, compile, explain, lookback,
};
use highwater_time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

// Queries.

/// Any text is a query or has errors that can be shown. Nothing is declared, so FROM fails and little beyond the parser
/// has a say.
pub(crate) fn parser(bytes: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(bytes);
    checked(&text, &Catalog::default()).0
}

/// The same with any input, which lets queries get through to a plan. A plan can be explained and laid out.
pub(crate) fn binder(bytes: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(bytes);
    let (kind, compiled) = checked(&text, &catalog());
    let Some(compiled) = compiled else {
        return kind;
    };
    let _ = lookback(&compiled.plan);
    let _ = PhysicalPlan::new(Arc::new(compiled.plan));
    kind
}

/// Streams of any name, and the reference data that the corpus uses.
fn catalog() -> Catalog {
    let reference = |name: &str| CatalogInput {
        name: name.to_string(),
        reference: true,
    };
    Catalog {
        inputs: ["Rooms", "Ref", "Reference"].map(reference).into(),
        ..Catalog::open()
    }
}

fn checked(text: &str, catalog: &Catalog) -> (u64, Option<CompiledQuery>) {
    match compile(text, catalog) {
        Ok(compiled) => {
            check_diagnostics(&compiled.warnings, text, false);
            (shape(&explain(&compiled.plan)), Some(compiled))
        }
        Err(errors) => {
            check_diagnostics(&errors, text, true);
            let kinds: Vec<_> = errors
                .iter()
                .map(|error| (error.code, shape(&error.message)))
                .collect();
            (hash(kinds), None)
        }
    }
}

fn check_diagnostics(diagnostics: &[Diagnostic], text: &str, errors: bool) {
    assert!(
        !errors || !diagnostics.is_empty(),
        "rejected without a word"
    );
    for diagnostic in diagnostics {
        let (start, end) = (diagnostic.span.start as usize, diagnostic.span.end as usize);
        assert_eq!(diagnostic.is_error(), errors, "{diagnostic:?}");
        assert!(start <= end && end <= text.len(), "{diagnostic:?}");
        let whole = text.is_char_boundary(start) && text.is_char_boundary(end);
        assert!(whole, "{diagnostic:?} cuts a character");
        assert!(!diagnostic.render(text, "q").is_empty());
    }
}

/// A text without what makes it special: names, numbers and how often things are repeated.
fn shape(text: &str) -> u64 {
    let mut words: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphabetic())
        .filter(|word| word.len() > 3)
        .collect();
    words.sort_unstable();
    words.dedup();
    hash(words)
}

// Running.

/// A query over random events gives the same rows however they are cut into chunks, for any positions of watermarks,
/// and with a restart in between.
pub(crate) fn engine(bytes: &[u8]) -> u64 {
    let (kind, rows) = run(bytes);
    hash((kind, rows))
}

/// What kind of query it is, and how many rows came out if it could be run.
pub(crate) fn run(bytes: &[u8]) -> (u64, Option<usize>) {
    let text = String::from_utf8_lossy(bytes);
    let (kind, compiled) = checked(&text, &catalog());
    let Some(CompiledQuery { plan, .. }) = compiled else {
        return (kind, None);
    };
    // Reference data and substreams need more than this feeds. There are no functions of one's own, so calls of them
    // fail.
    let substreams = plan.inputs.iter().any(|input| !input.substream.is_empty());
    if substreams || !plan.references.is_empty() || plan.inputs.is_empty() {
        return (kind, None);
    }
    let Ok(physical) = PhysicalPlan::new(Arc::new(plan)) else {
        return (kind, None);
    };
    let mut random = Random::seeded(hash(bytes));
    let inputs = physical.plan().inputs.iter();
    let streams: Vec<Vec<Row>> = inputs
        .map(|input| rows(input.reads.len(), &mut random))
        .collect();
    let at_once = Run::new(&physical).run(&streams, None);
    let in_pieces = Run::new(&physical).run(&streams, Some(&mut random));
    assert_eq!(at_once, in_pieces, "the cut into chunks shows");
    (kind, Some(at_once.iter().map(Vec::len).sum()))
}

struct Row {
    time: i64,
    values: Vec<Value>,
}

const ROWS_MAX: u64 = 24;
const SECOND: i64 = 10_000_000;
/// Midnight, 2 March 2026: on the grid of every usual window.
const START: i64 = 63_908_006_400 * SECOND;

fn rows(width: usize, random: &mut Random) -> Vec<Row> {
    let mut time = START;
    let step = [0, SECOND / 2, SECOND, 10 * SECOND, 3600 * SECOND];
    let mut row = || {
        time += step[random.below(5) as usize];
        let values = (0..width).map(|_| value(random, 2)).collect();
        Row { time, values }
    };
    let mut made = vec![row()];
    let count = 1 + (made[0].time as u64 + width as u64) % ROWS_MAX;
    made.extend((1..count).map(|_| row()));
    made
}

fn value(random: &mut Random, depth: u32) -> Value {
    let kinds = if depth > 0 { 14 } else { 12 };
    match random.below(kinds) {
        0 => Value::Null,
        1 => Value::Bit(random.below(2) == 1),
        2..=5 => Value::Int(random.below(5) as i64 - 1),
        6 => Value::Int([i64::MAX, i64::MIN, 1 << 53, -1][random.below(4) as usize]),
        7 => Value::Float([0.5, -2.25, 1e300, -0.0, 5e-324][random.below(5) as usize]),
        8 | 9 => Value::Text(
            [
                "",
                "a",
                "A",
                "7",
                " 1.5 ",
                "ä😀",
                "%_[",
                "2026-03-02T00:00:01Z",
            ][random.below(8) as usize]
                .into(),
        ),
        10 | 11 => Value::Time(Instant::from_ticks(START + random.below(9) as i64 * SECOND)),
        12 => {
            let mut record = Record::with_capacity(2);
            for name in ["a", "type"] {
                record.set(name.into(), value(random, depth - 1));
            }
            Value::Record(Arc::new(record))
        }
        _ => {
            let items = (0..random.below(3)).map(|_| value(random, depth - 1));
            Value::Array(items.collect())
        }
    }
}

/// Per output, its rows as text.
type Rows = Vec<Vec<String>>;

struct Run<'p> {
    physical: &'p PhysicalPlan,
    locals: Vec<Pipeline>,
    shared: SharedPipeline,
    results: Vec<(usize, Item)>,
}

impl<'p> Run<'p> {
    fn new(physical: &'p PhysicalPlan) -> Run<'p> {
        let plan: &Plan = physical.plan();
        Run {
            physical,
            locals: (0..plan.inputs.len())
                .map(|input| physical.local(input))
                .collect(),
            shared: physical.shared(&vec![1; plan.inputs.len()]),
            results: Vec::new(),
        }
    }

    /// In one chunk each, or in pieces by chance.
    fn run(mut self, streams: &[Vec<Row>], mut pieces: Option<&mut Random>) -> Rows {
        let mut done = vec![0; streams.len()];
        while let Some(next) = self.next(streams, &done, pieces.as_deref_mut()) {
            let rows = &streams[next][done[next]..];
            let count = pieces.as_deref_mut().map_or(rows.len(), |random| {
                1 + random.below(rows.len() as u64) as usize
            });
            self.push(next, Item::Rows(chunk(&rows[..count])));
            done[next] += count;
            let Some(random) = pieces.as_deref_mut() else {
                continue;
            };
            if let (1, Some(row)) = (random.below(2), streams[next].get(done[next])) {
                self.push(next, Item::Watermark(Instant::from_ticks(row.time)));
            }
            if random.below(4) == 0 {
                self.restart();
            }
        }
        for input in 0..streams.len() {
            self.push(input, Item::Watermark(Instant::AFTER_ALL));
        }
        self.into_rows()
    }

    /// The stream to take from: the first that has rows left, or any.
    fn next(
        &self,
        streams: &[Vec<Row>],
        done: &[usize],
        random: Option<&mut Random>,
    ) -> Option<usize> {
        let left: Vec<usize> = (0..streams.len())
            .filter(|at| done[*at] < streams[*at].len())
            .collect();
        let at = random.map_or(0, |random| random.below(left.len() as u64) as usize);
        left.get(at).copied()
    }

    fn push(&mut self, input: usize, item: Item) {
        let mut handed = Vec::new();
        self.locals[input].push(PhysicalPlan::LOCAL_ENTRY, item, &mut handed);
        for (exit, item) in handed {
            let entry = self.shared.entry(input, exit, 0);
            self.shared.pipeline.push(entry, item, &mut self.results);
        }
    }

    fn restart(&mut self) {
        let mut writer = Vec::new();
        self.locals
            .iter()
            .for_each(|local| local.snapshot(&mut writer));
        self.shared.pipeline.snapshot(&mut writer);
        let mut reader = Reader::new(&writer);
        let fresh = Run::new(self.physical);
        (self.locals, self.shared) = (fresh.locals, fresh.shared);
        let locals = self.locals.iter_mut();
        for pipeline in locals.chain([&mut self.shared.pipeline]) {
            pipeline
                .restore(&mut reader)
                .expect("what was written can be read");
        }
        assert!(reader.is_done());
    }

    fn into_rows(self) -> Rows {
        let mut rows = vec![Vec::new(); self.physical.plan().outputs.len()];
        for (output, item) in &self.results {
            let Item::Rows(chunk) = item else { continue };
            for row in 0..chunk.rows() {
                let mut text = chunk.times[row].to_string();
                for column in &chunk.columns {
                    text.push('|');
                    let value = column.get(row);
                    text.push_str(&format!("{:?}:", std::mem::discriminant(&value)));
                    eval::write_json(value, &mut text);
                }
                rows[*output].push(text);
            }
        }
        rows
    }
}

fn chunk(rows: &[Row]) -> Chunk {
    let column = |at: usize| {
        let mut builder = ColumnBuilder::default();
        rows.iter()
            .for_each(|row| builder.push(row.values[at].view()));
        builder.finish()
    };
    let columns = (0..rows[0].values.len()).map(column).collect();
    Chunk::new(rows.iter().map(|row| row.time).collect(), columns)
}

// Events.

fn fields() -> Vec<Field> {
    let path = |path: &str| path.split('.').map(String::from).collect();
    vec![
        Field::Path(path("a")),
        Field::Path(path("device.id")),
        Field::Time(path("t")),
        Field::Path(path("v")),
    ]
}

fn decode<'b>(fields: Vec<Field>, blocks: impl IntoIterator<Item = &'b [u8]>) -> DecodedBatch {
    let mut batch = Batch::tracking_lines(fields.len());
    let mut decoder = Decoder::new(fields);
    for (at, block) in blocks.into_iter().enumerate() {
        decoder.decode(block, at as u64 + 1, &mut batch);
    }
    batch.finish()
}

/// A line of JSON is an event or a bad line, whatever is read of it and however it came; and what we take for JSON is
/// JSON to others.
pub(crate) fn json_decoder(bytes: &[u8]) -> u64 {
    let all = decode(fields(), [bytes]);
    let lines = decode(fields(), bytes.split_inclusive(|byte| *byte == b'\n'));
    assert_eq!(
        (all.rows, &all.lines),
        (lines.rows, &lines.lines),
        "cut at lines"
    );
    assert_eq!(all.bad.len(), lines.bad.len(), "cut at lines");
    for (at, (whole, cut)) in all.columns.iter().zip(&lines.columns).enumerate() {
        for row in 0..all.rows {
            let (whole, cut) = (whole.get(row), cut.get(row));
            assert_eq!(format!("{whole:?}"), format!("{cut:?}"), "column {at}");
        }
    }
    let records = decode(vec![Field::Whole], [bytes]);
    let nothing = decode(Vec::new(), [bytes]);
    assert_eq!(all.lines, records.lines, "as records");
    assert_eq!(all.lines, nothing.lines, "unread");
    let text: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for line in &all.lines {
        let line = text[*line as usize - 1];
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let theirs = serde_json::from_slice::<serde_json::Value>(line);
        assert!(
            matches!(theirs, Ok(serde_json::Value::Object(_))),
            "{theirs:?}"
        );
    }
    let reasons: Vec<u64> = all
        .bad
        .iter()
        .map(|bad| shape(&bad.reason.to_string()))
        .collect();
    hash((reasons, all.rows > 0))
}

/// A file of CSV is read to its end, and every record is an event or a bad one.
pub(crate) fn csv(bytes: &[u8]) -> u64 {
    let read = file(bytes, Format::Csv(CsvFormat::default()), fields());
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
    assert!(read.events <= lines, "more events than lines");
    read.kind
}

/// A file of Avro is read to its end, or to where it is damaged; what takes no bytes has a limit.
pub(crate) fn avro(bytes: &[u8]) -> u64 {
    let read = file(bytes, Format::Avro, all_fields());
    assert!(
        read.events <= EVENTS_MAX,
        "more events than an honest file of this size has"
    );
    read.kind
}

/// The same of Parquet. A few bytes may encode any number of equal rows, so not all need be read.
pub(crate) fn parquet(bytes: &[u8]) -> u64 {
    file(bytes, Format::Parquet, all_fields()).kind
}

/// More than a file of some kilobytes has.
const EVENTS_MAX: usize = 4 << 20;
/// Files that claim to be endless are read up to here.
const BATCHES_MAX: usize = 64;
/// What the process may take, with all that other targets have taken before.
const MEMORY_BYTES_MAX: u64 = 2 << 30;

fn all_fields() -> Vec<Field> {
    let mut all = fields();
    all.push(Field::Whole);
    all
}

struct FileRead {
    kind: u64,
    events: usize,
}

fn file(bytes: &[u8], format: Format, fields: Vec<Field>) -> FileRead {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("it can be written");
    let options = SourceOptions {
        format: Some(format),
        ..SourceOptions::of(fields)
    };
    let Ok(mut source) = open(file.path(), options) else {
        return FileRead { kind: 1, events: 0 };
    };
    let (mut rows, mut reasons, mut batches) = (0, Vec::new(), 0);
    let ended = loop {
        batches += 1;
        if batches > BATCHES_MAX {
            break 0;
        }
        match source.next_batch() {
            Ok(Some(events)) => {
                assert_eq!(events.rows, events.lines.len());
                assert!(
                    events
                        .columns
                        .iter()
                        .all(|column| column.len() == events.rows)
                );
                rows += events.rows;
                reasons.extend(events.bad.iter().map(|bad| (bad.kind, shape(&bad.reason))));
            }
            Ok(None) => break 0,
            Err(error) => {
                let name = file.path().display().to_string();
                break 1 + shape(&error.to_string().replace(&name, "")) / 2;
            }
        }
    };
    let peak = highwater_env::usage().memory_peak_bytes;
    assert!(
        peak.is_none_or(|peak| peak < MEMORY_BYTES_MAX),
        "it took {peak:?} bytes"
    );
    let events = rows + reasons.len();
    reasons.dedup();
    FileRead {
        kind: hash((rows.min(3), reasons, ended)),
        events,
    }
}

// Jobs.

/// Any text is a job file or has mistakes that can be shown.
pub(crate) fn job_file(bytes: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(bytes);
    match JobFile::parse(&text, "job.toml") {
        Ok(_) => 0,
        Err(error) => shape(&error.to_string()),
    }
}

// AMQP.

/// Any bytes on a connection give events that an owner can answer, within the limits, or end it; everything written can
/// be split into frames.
pub(crate) fn amqp(bytes: &[u8]) -> u64 {
    use highwater_amqp::{
        AmqpError, Connection, Event, LinkTerms, Outcome, OutgoingMessage, Role, condition,
    };
    let options = highwater_amqp::Options {
        links_max: 4,
        incomplete_bytes_max: 1 << 12,
        ..highwater_amqp::Options::default()
    };
    let mut connection = Connection::new(options, Duration::ZERO);
    let mut input = bytes::BytesMut::from(bytes);
    let mut kinds: Vec<u8> = Vec::new();
    while let Ok(Some(event)) = connection.next_event(&mut input, Duration::ZERO) {
        kinds.push(match &event {
            Event::Login { .. } => 0,
            Event::Attach { .. } => 1,
            Event::Delivery(_) => 2,
            Event::Credit { .. } => 3,
            Event::Detached { .. } => 4,
            Event::Closed => 5,
            Event::Disposition { .. } => 6,
        });
        match event {
            Event::Login { .. } => connection.finish_login(true),
            Event::Attach { link, attach } if attach.address().is_some() => {
                let message_bytes_max = 1 << 10;
                let credit = if attach.role == Role::Sender { 3 } else { 0 };
                connection.accept_link(
                    link,
                    LinkTerms {
                        message_bytes_max,
                        credit,
                        ..LinkTerms::default()
                    },
                );
            }
            Event::Attach { link, .. } => {
                connection.refuse_link(link, AmqpError::new(condition::NOT_FOUND, ""));
            }
            Event::Delivery(delivery) => {
                let (link, id) = (delivery.link, delivery.id);
                let sections = highwater_amqp::MessageReader::new(&delivery.payload);
                kinds.extend(sections.map(|section| 10 + u8::from(section.is_ok())));
                match delivery.settled {
                    true => connection.release(link, 1),
                    false => connection.settle(link, id, id, &Outcome::Accepted),
                }
            }
            Event::Credit { link } => {
                let payload = bytes::Bytes::from_static(&[7; 1500]);
                connection.send(
                    link,
                    OutgoingMessage {
                        payload,
                        settled: false,
                        tag: Some([1; 16]),
                    },
                );
                connection.finish_drain(link);
            }
            Event::Disposition {
                link,
                deliveries,
                outcome,
                settled: false,
                transaction: None,
            } => {
                for delivery in deliveries {
                    let told = outcome.kind.confirmation();
                    connection.confirm(link, delivery.id, delivery.id, &told);
                }
            }
            Event::Disposition { .. } | Event::Detached { .. } | Event::Closed => {}
        }
        assert!(connection.incomplete_bytes() <= 1 << 12);
    }
    check_amqp_frames(connection.output());
    hash(kinds)
}

fn check_amqp_frames(mut output: &[u8]) {
    while let Some(length) = output.first_chunk() {
        let length = match length {
            b"AMQP" => 8,
            length => u32::from_be_bytes(*length) as usize,
        };
        let (frame, rest) = output.split_at_checked(length).expect("a frame is whole");
        assert!(frame.len() >= 8);
        output = rest;
    }
    assert!(output.is_empty());
}

// The Kafka protocol.

/// Any bytes on a connection are answered with whole answers, or end it. Time is that of the runtime, which jumps ahead
/// whenever there is nothing to do, so that an idle connection is closed at once.
pub(crate) fn kafka(bytes: &[u8]) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread can be had");
    let answers = runtime.block_on(converse(bytes.to_vec()));
    let mut rest = &answers[..];
    let mut kinds = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        kinds.push(length);
        rest = behind.get(length..).expect("an answer is whole");
    }
    assert!(rest.is_empty(), "an answer is whole");
    hash(kinds)
}

struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn unix_nanos(&self) -> i128 {
        self.elapsed().as_nanos() as i128
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

async fn converse(bytes: Vec<u8>) -> Vec<u8> {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(tokio::time::Instant::now()));
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new(|| 0));
    let groups = groups::Service::new(
        Arc::clone(&log),
        Arc::clone(&clock),
        Random::seeded(1),
        groups::Options::default(),
    );
    let transactions = transactions::Service::new(
        Arc::clone(&log),
        Arc::clone(&clock),
        groups.handle(),
        transactions::Options::default(),
    );
    let services = Services {
        log: Arc::clone(&log),
        groups: Arc::new(groups.handle()),
        transactions: Arc::new(transactions.handle()),
        authorizer: Arc::new(AllowAll),
        settings: Arc::new(FixedSettings::default()),
        clock,
    };
    let spec = HubSpec {
        name: HubName::new("t").expect("it is a name"),
        partitions: 2,
        settings: HubSettings::default(),
    };
    log.create(spec).await.expect("a hub can be made");
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (mut reader, mut writer) = tokio::io::split(ours);
    let forever = std::future::pending;
    tokio::spawn(groups.run(forever()));
    tokio::spawn(transactions.run(forever()));
    let server = tokio::spawn(serve(Options::default(), services, theirs));
    let writing = tokio::spawn(async move {
        // The server may have closed before everything is written.
        let _ = writer.write_all(&bytes).await;
        writer
    });
    let mut answers = Vec::new();
    let _ = reader.read_to_end(&mut answers).await;
    server.await.expect("the connection ends without a panic");
    let _ = writing.await;
    answers
}
