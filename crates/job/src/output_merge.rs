//! Merges and numbers the rows of one output.
//!
//! Several statements may write to one output; their rows are merged by time and then by statement, so that order and
//! numbers do not depend on which statement was faster.

use std::sync::Arc;

use arrow_array::StringArray;
use arrow_buffer::BooleanBuffer;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::json::JsonWriter;
use highwater_connect::{EndpointError, RowNames, Rows};
use highwater_engine::{Chunk, Column, Context, DataErrors, Item, Merge, Operator};
use highwater_query::plan::{Name, Node, NodeId, Plan};
use highwater_time::Instant;

/// A message to an output.
pub(crate) enum OutputMessage {
    Rows(Rows),
    /// Every row before this time has been sent.
    Advance(Instant),
    /// Make all rows so far durable, for the checkpoint of this number.
    Settle(u64),
}

/// Receives the messages of an output: in place, or through a queue.
pub(crate) trait OutputPort: Send {
    fn send(&mut self, message: OutputMessage) -> Result<(), EndpointError>;

    /// See `Endpoint::note`.
    fn note(&self) -> Option<String> {
        None
    }
}

/// How rows of a statement are represented in the merge with other statements.
pub(crate) enum RowForm {
    /// The columns unchanged.
    Columns,
    /// One record per row, because the columns of statements differ.
    Record(RowNames),
    /// A prefix and a line of JSON per row.
    Line { writer: JsonWriter, prefix: String },
}

impl RowForm {
    pub(crate) fn apply(&mut self, chunk: Chunk) -> Chunk {
        match self {
            RowForm::Columns => chunk,
            RowForm::Record(names) => {
                let rows = Column::Dynamic(Arc::new(names.records(&chunk)));
                chunk.with_columns(vec![rows])
            }
            RowForm::Line { writer, prefix } => {
                let mut bytes = Vec::new();
                writer.write(&chunk, &mut bytes);
                let text = String::from_utf8_lossy(&bytes);
                let lines = text.lines().map(|line| Some(format!("{prefix}{line}")));
                chunk.with_columns(vec![Column::Text(StringArray::from_iter(lines))])
            }
        }
    }
}

pub(crate) struct OutputMerge {
    /// Per statement.
    forms: Vec<RowForm>,
    /// Rows per statement.
    made: Vec<u64>,
    merge: Merge,
    /// The number of the next row.
    next: u64,
    /// Rows before this time are dropped.
    since: Instant,
    port: Box<dyn OutputPort>,
}

impl OutputMerge {
    pub(crate) fn new(
        forms: Vec<RowForm>,
        since: Instant,
        port: Box<dyn OutputPort>,
    ) -> OutputMerge {
        OutputMerge {
            made: vec![0; forms.len()],
            merge: Merge::new(forms.len().max(1)),
            forms,
            next: 0,
            since,
            port,
        }
    }

    /// The number of the next row.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Rows per statement.
    pub(crate) fn made(&self) -> &[u64] {
        &self.made
    }

    pub(crate) fn note(&self) -> Option<String> {
        self.port.note()
    }

    /// Takes an item of one of its statements.
    pub(crate) fn push(&mut self, statement: usize, item: Item) -> Result<(), EndpointError> {
        let item = match item {
            Item::Rows(chunk) => {
                self.made[statement] += chunk.rows() as u64;
                Item::Rows(self.forms[statement].apply(chunk))
            }
            other => other,
        };
        let mut merged = Vec::new();
        let mut errors = DataErrors::default();
        let mut context = Context {
            out: &mut merged,
            errors: &mut errors,
            trace: None,
        };
        self.merge.push(statement, item, &mut context);
        merged.into_iter().try_for_each(|item| match item {
            Item::Rows(chunk) => self.send_rows(chunk),
            _ => Ok(()),
        })
    }

    /// Numbers rows and sends them.
    pub(crate) fn send_rows(&mut self, chunk: Chunk) -> Result<(), EndpointError> {
        let is_due = |time: &i64| *time >= self.since.ticks();
        let mut chunk = match self.since == Instant::BEFORE_ALL || chunk.times.iter().all(is_due) {
            true => chunk,
            false => {
                let due: BooleanBuffer = chunk.times.iter().map(is_due).collect();
                chunk.filter(&due)
            }
        };
        if chunk.rows() == 0 {
            return Ok(());
        }
        (chunk.lanes, chunk.origins) = (None, None);
        let rows = Rows {
            first: self.next,
            chunk,
        };
        self.next = rows.end();
        self.send(OutputMessage::Rows(rows))
    }

    pub(crate) fn send(&mut self, message: OutputMessage) -> Result<(), EndpointError> {
        self.port.send(message)
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        out.u64(self.next);
        let mut merge = Vec::new();
        self.merge.snapshot(&mut merge);
        out.blob(&merge);
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.next = from.u64()?;
        self.merge.restore(&mut Reader::new(from.blob()?))
    }
}

/// The names of the columns of a node.
pub(crate) fn column_names(plan: &Plan, node: NodeId) -> Vec<Name> {
    match &plan.nodes[node.0] {
        Node::Source { input } => plan.inputs[*input]
            .reads
            .iter()
            .map(|_| Name::Hidden(String::new()))
            .collect(),
        Node::Filter { from, .. } => column_names(plan, *from),
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
