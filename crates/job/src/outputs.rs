//! Result rows on their way out.
//!
//! A destination takes the rows of one or more statements. Where there are several, they are merged by time and then by
//! statement, so that what is written does not depend on which statement was faster.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::StringArray;
use highwater_connect::json::JsonWriter;
use highwater_connect::{
    FileSink, OutputFormat, RowNames, RowWriter, Sink, SinkError, StdoutSink, WriterOutput,
    row_writer,
};
use highwater_engine::{Chunk, Column, Context, DataErrors, Item, Merge, Operator};
use highwater_query::plan::{Name, Node, NodeId, Plan};

use crate::config::{JobFile, Sink as Declared};
use crate::dead::DeadLetter;
use crate::load::Job;
use crate::report::OutputReport;

/// Where the rows of all outputs go.
pub struct Outputs {
    destinations: Vec<Destination>,
    /// Per statement, its destination and its place among the statements of that destination.
    statements: Vec<(usize, usize)>,
    dead: Option<DeadOutput>,
}

/// Where dead letters go.
struct DeadOutput {
    output: String,
    destination: usize,
    /// In front of every letter, where the destination takes other rows as well.
    prefix: String,
    letters: u64,
}

/// A file, standard output or memory.
#[derive(Clone, PartialEq)]
struct Place {
    to: To,
    format: OutputFormat,
}

#[derive(Clone, PartialEq)]
enum To {
    File(PathBuf),
    Stdout,
    Memory(String),
    Nowhere,
}

struct Destination {
    place: Place,
    sink: Box<dyn Sink>,
    /// Parts that are complete.
    parts: Vec<Box<dyn Sink>>,
    collected: Option<Collected>,
    statements: Vec<Statement>,
    merge: Option<Merge>,
    /// For formats other than lines of JSON.
    writer: Option<Box<dyn RowWriter>>,
    buffer: Vec<u8>,
}

struct Statement {
    output: String,
    lines: JsonWriter,
    names: Vec<Name>,
    rows_of: RowNames,
    /// In front of every row, where a destination takes several outputs.
    prefix: String,
    rows: u64,
}

/// Everything that was written, by output name.
pub type Collected = std::sync::Arc<std::sync::Mutex<HashMap<String, Vec<u8>>>>;

impl Outputs {
    /// As the job file says; what it does not declare goes to standard output.
    pub fn declared(file: &JobFile, plan: &Plan) -> Result<Outputs, SinkError> {
        let place = |output: &str| {
            let declared = declared(file, output);
            let to = match declared.map(|o| &o.sink) {
                Some(Declared::File(path)) => To::File(path.clone()),
                Some(Declared::Stdout) | None => To::Stdout,
                // A job with such an output is run live or not at all.
                Some(Declared::Live(_)) => To::Nowhere,
            };
            let format = declared.map(|o| o.format).unwrap_or_default();
            Place { to, format }
        };
        Outputs::new(plan, place, file.dead_letter.as_deref(), None)
    }

    /// Everything into memory, as lines of JSON.
    pub fn collected(plan: &Plan) -> (Outputs, Collected) {
        Outputs::in_memory(plan, None, |_| OutputFormat::JsonLines)
    }

    /// Everything into memory, in the formats that the job file declares, dead letters included.
    pub fn collected_as_declared(file: &JobFile, plan: &Plan) -> (Outputs, Collected) {
        Outputs::in_memory(plan, file.dead_letter.as_deref(), |output| {
            declared(file, output).map(|o| o.format).unwrap_or_default()
        })
    }

    fn in_memory(
        plan: &Plan,
        dead_letter: Option<&str>,
        format: impl Fn(&str) -> OutputFormat,
    ) -> (Outputs, Collected) {
        let collected = Collected::default();
        let place = |output: &str| Place {
            to: To::Memory(output.to_owned()),
            format: format(output),
        };
        match Outputs::new(plan, place, dead_letter, Some(collected.clone())) {
            Ok(outputs) => (outputs, collected),
            Err(_) => unreachable!("memory cannot be refused"),
        }
    }

    /// Nowhere, for when only the fate of events is of interest.
    pub fn discarded(plan: &Plan) -> Outputs {
        let nowhere = |_: &str| Place {
            to: To::Nowhere,
            format: OutputFormat::JsonLines,
        };
        match Outputs::new(plan, nowhere, None, None) {
            Ok(outputs) => outputs,
            Err(_) => unreachable!("nowhere cannot be refused"),
        }
    }

    fn new(
        plan: &Plan,
        place: impl Fn(&str) -> Place,
        dead_letter: Option<&str>,
        collected: Option<Collected>,
    ) -> Result<Outputs, SinkError> {
        let mut outputs = Outputs {
            destinations: Vec::new(),
            statements: Vec::new(),
            dead: None,
        };
        for output in &plan.outputs {
            let destination = outputs.destination(place(&output.name), collected.as_ref())?;
            let statements = &mut outputs.destinations[destination].statements;
            outputs.statements.push((destination, statements.len()));
            let names = names(plan, output.from);
            statements.push(Statement {
                output: output.name.clone(),
                lines: JsonWriter::new(names.clone()),
                rows_of: RowNames::new(names.clone()),
                names,
                prefix: String::new(),
                rows: 0,
            });
        }
        for destination in &mut outputs.destinations {
            destination.settle()?;
        }
        if let Some(output) = dead_letter {
            let known = outputs.destinations.len();
            let destination = outputs.destination(place(output), collected.as_ref())?;
            outputs.dead = Some(DeadOutput {
                output: output.to_owned(),
                destination,
                prefix: match destination < known {
                    true => format!("{output}\t"),
                    false => String::new(),
                },
                letters: 0,
            });
        }
        Ok(outputs)
    }

    /// The destination for a place, opened if it is new.
    fn destination(
        &mut self,
        place: Place,
        collected: Option<&Collected>,
    ) -> Result<usize, SinkError> {
        let known = self.destinations.iter().position(|d| d.place == place);
        if let Some(known) = known {
            return Ok(known);
        }
        self.destinations
            .push(Destination::new(place, collected.cloned())?);
        Ok(self.destinations.len() - 1)
    }

    /// Takes an item of statement `statement` (its place in `Plan::outputs`).
    pub fn take(&mut self, statement: usize, item: Item) -> Result<(), SinkError> {
        let (destination, port) = self.statements[statement];
        self.destinations[destination].take(port, item)
    }

    /// Takes dead letters; without a place for them they are only counted, elsewhere.
    pub(crate) fn take_dead(&mut self, job: &Job, letters: &[DeadLetter]) -> Result<(), SinkError> {
        let Some(dead) = &mut self.dead else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        for letter in letters {
            dead.letters += 1;
            bytes.extend_from_slice(dead.prefix.as_bytes());
            let query_name = crate::account::shown_file(&job.query_name, &job.file.folder);
            letter.write(&query_name, &job.query, &mut bytes);
        }
        self.destinations[dead.destination].sink.write(&bytes)
    }

    /// Makes everything written so far final.
    pub fn commit(mut self) -> Result<Vec<OutputReport>, SinkError> {
        let mut reports: Vec<OutputReport> = Vec::new();
        // Nothing is final before everything has been written.
        for destination in &mut self.destinations {
            destination.finish()?;
        }
        let dead = self.dead.map(|dead| (dead.output, dead.letters));
        for destination in self.destinations {
            let note = destination.writer.as_ref().and_then(|writer| writer.note());
            for statement in &destination.statements {
                let same = |r: &&mut OutputReport| r.name.eq_ignore_ascii_case(&statement.output);
                let report = match reports.iter_mut().find(same) {
                    Some(report) => report,
                    None => {
                        reports.push(OutputReport {
                            name: statement.output.clone(),
                            ..OutputReport::default()
                        });
                        reports.last_mut().expect("one was pushed just now")
                    }
                };
                report.rows += statement.rows;
                report.notes.extend(note.clone());
                report.notes.dedup();
            }
            for part in destination.parts {
                part.commit()?;
            }
            destination.sink.commit()?;
        }
        reports.extend(dead.map(|(name, rows)| OutputReport {
            name,
            rows,
            notes: Vec::new(),
        }));
        Ok(reports)
    }

    /// How many dead letters were written.
    pub(crate) fn dead_letters(&self) -> u64 {
        self.dead.as_ref().map_or(0, |dead| dead.letters)
    }
}

fn declared<'a>(file: &'a JobFile, output: &str) -> Option<&'a crate::config::Output> {
    let mut outputs = file.outputs.iter();
    outputs.find(|o| o.name.eq_ignore_ascii_case(output))
}

impl Place {
    /// Opens the place, or a further part of it.
    fn open(&self, part: usize, collected: Option<&Collected>) -> Result<Box<dyn Sink>, SinkError> {
        Ok(match (&self.to, collected) {
            (To::File(path), _) => Box::new(FileSink::create(part_path(path, part))?),
            (To::Memory(output), Some(collected)) => Box::new(MemorySink {
                output: match part {
                    1 => output.clone(),
                    part => format!("{output}-{part}"),
                },
                collected: collected.clone(),
            }),
            (To::Nowhere, _) => Box::new(NoSink),
            (To::Stdout | To::Memory(_), _) => Box::new(StdoutSink::new()),
        })
    }
}

/// `out/a.parquet`, then `out/a-2.parquet` and so on.
fn part_path(path: &Path, part: usize) -> PathBuf {
    if part == 1 {
        return path.to_path_buf();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{part}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{part}"),
    };
    path.with_file_name(name)
}

impl Destination {
    fn new(place: Place, collected: Option<Collected>) -> Result<Destination, SinkError> {
        Ok(Destination {
            sink: place.open(1, collected.as_ref())?,
            place,
            parts: Vec::new(),
            collected,
            statements: Vec::new(),
            merge: None,
            writer: None,
            buffer: Vec::new(),
        })
    }

    /// Once all statements are known: merge them if there are several, and tell outputs apart if there are several.
    fn settle(&mut self) -> Result<(), SinkError> {
        let lines = self.place.format == OutputFormat::JsonLines;
        if !lines {
            let names = match &self.statements[..] {
                [only] => only.names.clone(),
                _ => vec![Name::Spread],
            };
            self.writer = Some(row_writer(self.place.format, names)?);
        }
        if self.statements.len() < 2 {
            return Ok(());
        }
        self.merge = Some(Merge::new(self.statements.len()));
        let first = self.statements[0].output.clone();
        let other = |s: &Statement| !s.output.eq_ignore_ascii_case(&first);
        if lines && self.statements.iter().any(other) {
            for statement in &mut self.statements {
                statement.prefix = format!("{}\t", statement.output);
            }
        }
        Ok(())
    }

    fn take(&mut self, port: usize, item: Item) -> Result<(), SinkError> {
        let statement = &mut self.statements[port];
        if let Item::Rows(chunk) = &item {
            statement.rows += chunk.rows() as u64;
        }
        match (&mut self.merge, item) {
            (None, Item::Rows(chunk)) => match &mut self.writer {
                None => {
                    self.buffer.clear();
                    statement.lines.write(&chunk, &mut self.buffer);
                    self.sink.write(&self.buffer)
                }
                Some(writer) => {
                    writer.write(&chunk)?;
                    self.pass_on()
                }
            },
            (None, _) => Ok(()),
            (Some(merge), item) => {
                let item = match item {
                    Item::Rows(chunk) if self.writer.is_some() => {
                        let rows = Column::Dynamic(Arc::new(statement.rows_of.records(&chunk)));
                        Item::Rows(chunk.with_columns(vec![rows]))
                    }
                    Item::Rows(chunk) => Item::Rows(statement.as_lines(&chunk)),
                    other => other,
                };
                let mut merged = Vec::new();
                let mut errors = DataErrors::default();
                let mut context = Context {
                    out: &mut merged,
                    errors: &mut errors,
                    trace: None,
                };
                merge.push(port, item, &mut context);
                merged.iter().try_for_each(|item| self.write_merged(item))
            }
        }
    }

    fn write_merged(&mut self, item: &Item) -> Result<(), SinkError> {
        let Item::Rows(chunk) = item else {
            return Ok(());
        };
        if let Some(writer) = &mut self.writer {
            writer.write(chunk)?;
            return self.pass_on();
        }
        let Some(Column::Text(lines)) = chunk.columns.first() else {
            return Ok(());
        };
        self.buffer.clear();
        for line in lines.iter().flatten() {
            self.buffer.extend_from_slice(line.as_bytes());
            self.buffer.push(b'\n');
        }
        self.sink.write(&self.buffer)
    }

    /// What the writer has made goes to the sink.
    fn pass_on(&mut self) -> Result<(), SinkError> {
        while let Some(written) = self.writer.as_mut().and_then(|writer| writer.take()) {
            match written {
                WriterOutput::Bytes(bytes) => self.sink.write(&bytes)?,
                WriterOutput::NewPart => {
                    let number = self.parts.len() + 2;
                    let next = self.place.open(number, self.collected.as_ref())?;
                    self.parts.push(std::mem::replace(&mut self.sink, next));
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        if let Some(writer) = &mut self.writer {
            writer.finish()?;
        }
        self.pass_on()
    }
}

impl Statement {
    /// The rows as text, one line each.
    fn as_lines(&mut self, chunk: &Chunk) -> Chunk {
        let mut bytes = Vec::new();
        self.lines.write(chunk, &mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        let lines = text
            .lines()
            .map(|line| Some(format!("{}{line}", self.prefix)));
        chunk.with_columns(vec![Column::Text(StringArray::from_iter(lines))])
    }
}

struct MemorySink {
    output: String,
    collected: Collected,
}

struct NoSink;

impl Sink for NoSink {
    fn write(&mut self, _bytes: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Sink for MemorySink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        let mut collected = self.collected.lock().unwrap_or_else(|e| e.into_inner());
        collected
            .entry(self.output.clone())
            .or_default()
            .extend_from_slice(bytes);
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The names of a node's columns.
pub(crate) fn names(plan: &Plan, node: NodeId) -> Vec<Name> {
    match &plan.nodes[node.0] {
        Node::Source { input } => plan.inputs[*input]
            .reads
            .iter()
            .map(|_| Name::Hidden(String::new()))
            .collect(),
        Node::Filter { from, .. } => names(plan, *from),
        Node::Project { items, .. } => items.iter().map(|item| item.name.clone()).collect(),
        Node::Window(window) => {
            let keys = window.keys.iter().map(|key| Name::Field(key.name.clone()));
            keys.chain(
                window
                    .aggregates
                    .iter()
                    .map(|_| Name::Hidden(String::new())),
            )
            .collect()
        }
        Node::Union { names, .. } => names.clone(),
        Node::Match(node) => {
            let keys = node
                .partition
                .iter()
                .map(|key| Name::Field(key.name.clone()));
            keys.chain(node.measures.iter().map(|measure| measure.name.clone()))
                .collect()
        }
        Node::Join(_) | Node::Lookup(_) | Node::Apply { .. } | Node::Analytic(_) => {
            unreachable!("every statement ends in a projection, a union or a match")
        }
    }
}
