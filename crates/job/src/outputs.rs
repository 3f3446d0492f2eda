//! Result rows on their way out.
//!
//! A destination takes the rows of one or more statements. Where there are several, they are merged by time and then by
//! statement, so that what is written does not depend on which statement was faster.

use std::collections::HashMap;

use arrow_array::StringArray;
use highwater_connect::json::JsonWriter;
use highwater_connect::{FileSink, Sink, SinkError, StdoutSink};
use highwater_engine::{Chunk, Column, Context, DataErrors, Item, Merge, Operator};
use highwater_query::plan::{Name, Node, NodeId, Plan};

use crate::config::{JobFile, Sink as Declared};
use crate::report::OutputReport;

/// Where the rows of all outputs go.
pub struct Outputs {
    destinations: Vec<Destination>,
    /// Per statement, its destination and its place among the statements of that destination.
    statements: Vec<(usize, usize)>,
}

struct Destination {
    sink: Box<dyn Sink>,
    statements: Vec<Statement>,
    merge: Option<Merge>,
    buffer: Vec<u8>,
}

struct Statement {
    output: String,
    writer: JsonWriter,
    /// In front of every row, where a destination takes several outputs.
    prefix: String,
    rows: u64,
}

/// Everything that was written, by output name.
pub type Collected = std::sync::Arc<std::sync::Mutex<HashMap<String, Vec<u8>>>>;

impl Outputs {
    /// As the job file says; what it does not declare goes to standard output.
    pub fn declared(file: &JobFile, plan: &Plan) -> Result<Outputs, SinkError> {
        let declared = |output: &str| {
            file.outputs
                .iter()
                .find(|o| o.name.eq_ignore_ascii_case(output))
                .map(|o| &o.sink)
        };
        let place = |output: &str| match declared(output) {
            Some(Declared::File(path)) => Some(path.clone()),
            _ => None,
        };
        Outputs::new(plan, place, |path| {
            Ok(match path {
                Some(path) => Box::new(FileSink::create(path)?),
                None => Box::new(StdoutSink::new()),
            })
        })
    }

    /// Everything into memory.
    pub fn collected(plan: &Plan) -> (Outputs, Collected) {
        let collected = Collected::default();
        let outputs = Outputs::new(
            plan,
            |output| Some(output.to_string()),
            |output| {
                let output = output.clone().unwrap_or_default();
                Ok(Box::new(MemorySink {
                    output,
                    collected: collected.clone(),
                }))
            },
        );
        match outputs {
            Ok(outputs) => (outputs, collected),
            Err(_) => unreachable!("memory cannot be refused"),
        }
    }

    /// Nowhere, for when only the fate of events is of interest.
    pub fn discarded(plan: &Plan) -> Outputs {
        Outputs::collected(plan).0
    }

    fn new<P: Clone + PartialEq>(
        plan: &Plan,
        place: impl Fn(&str) -> P,
        mut open: impl FnMut(&P) -> Result<Box<dyn Sink>, SinkError>,
    ) -> Result<Outputs, SinkError> {
        let mut places: Vec<P> = Vec::new();
        let mut outputs = Outputs {
            destinations: Vec::new(),
            statements: Vec::new(),
        };
        for output in &plan.outputs {
            let here = place(&output.name);
            let destination = match places.iter().position(|other| *other == here) {
                Some(known) => known,
                None => {
                    outputs.destinations.push(Destination::new(open(&here)?));
                    places.push(here);
                    places.len() - 1
                }
            };
            let statements = &mut outputs.destinations[destination].statements;
            outputs.statements.push((destination, statements.len()));
            statements.push(Statement {
                output: output.name.clone(),
                writer: JsonWriter::new(names(plan, output.from)),
                prefix: String::new(),
                rows: 0,
            });
        }
        outputs
            .destinations
            .iter_mut()
            .for_each(Destination::settle);
        Ok(outputs)
    }

    /// Takes an item of statement `statement` (its place in `Plan::outputs`).
    pub fn take(&mut self, statement: usize, item: Item) -> Result<(), SinkError> {
        let (destination, port) = self.statements[statement];
        self.destinations[destination].take(port, item)
    }

    /// Makes everything written so far final.
    pub fn commit(self) -> Result<Vec<OutputReport>, SinkError> {
        let mut reports: Vec<OutputReport> = Vec::new();
        for destination in self.destinations {
            for statement in &destination.statements {
                match reports
                    .iter_mut()
                    .find(|report| report.name == statement.output)
                {
                    Some(report) => report.rows += statement.rows,
                    None => reports.push(OutputReport {
                        name: statement.output.clone(),
                        rows: statement.rows,
                    }),
                }
            }
            destination.sink.commit()?;
        }
        Ok(reports)
    }
}

impl Destination {
    fn new(sink: Box<dyn Sink>) -> Destination {
        Destination {
            sink,
            statements: Vec::new(),
            merge: None,
            buffer: Vec::new(),
        }
    }

    /// Once all statements are known: merge them if there are several, and tell outputs apart if there are several.
    fn settle(&mut self) {
        if self.statements.len() < 2 {
            return;
        }
        self.merge = Some(Merge::new(self.statements.len()));
        let first = self.statements[0].output.clone();
        if self
            .statements
            .iter()
            .any(|statement| statement.output != first)
        {
            for statement in &mut self.statements {
                statement.prefix = format!("{}\t", statement.output);
            }
        }
    }

    fn take(&mut self, port: usize, item: Item) -> Result<(), SinkError> {
        let statement = &mut self.statements[port];
        if let Item::Rows(chunk) = &item {
            statement.rows += chunk.rows() as u64;
        }
        match (&mut self.merge, item) {
            (None, Item::Rows(chunk)) => {
                self.buffer.clear();
                statement.writer.write(&chunk, &mut self.buffer);
                self.sink.write(&self.buffer)
            }
            (None, _) => Ok(()),
            (Some(merge), item) => {
                let item = match item {
                    Item::Rows(chunk) => Item::Rows(statement.lines(&chunk)),
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
                merged.iter().try_for_each(|item| self.write_lines(item))
            }
        }
    }

    fn write_lines(&mut self, item: &Item) -> Result<(), SinkError> {
        let Item::Rows(chunk) = item else {
            return Ok(());
        };
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
}

impl Statement {
    /// The rows as text, one line each.
    fn lines(&mut self, chunk: &Chunk) -> Chunk {
        let mut bytes = Vec::new();
        self.writer.write(chunk, &mut bytes);
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
