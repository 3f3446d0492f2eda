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
use highwater_engine::{Chunk, Column, Context, DataErrors, Item, Merge, Operator, OutputBudget};
use highwater_time::{Duration, Instant};

use crate::early::{EarlyPlan, Revisions};

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

/// A statement of an output.
struct OutputStatement {
    form: RowForm,
    /// Set if the output has early results.
    revisions: Option<Revisions>,
}

pub(crate) struct OutputMerge {
    statements: Vec<OutputStatement>,
    /// Rows per statement.
    made: Vec<u64>,
    merge: Merge,
    /// The number of the next row.
    next: u64,
    /// The time of the last row.
    last: Instant,
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
        let statements = forms.into_iter().map(|form| OutputStatement {
            form,
            revisions: None,
        });
        let statements: Vec<OutputStatement> = statements.collect();
        OutputMerge {
            made: vec![0; statements.len()],
            merge: Merge::new(statements.len().max(1)),
            statements,
            next: 0,
            last: Instant::BEFORE_ALL,
            since,
            port,
        }
    }

    /// Numbers the revisions of the rows of these statements of the plan, in its own order.
    #[must_use]
    pub(crate) fn with_revisions(mut self, plan: &EarlyPlan, statements: &[usize]) -> OutputMerge {
        for (own, statement) in self.statements.iter_mut().zip(statements) {
            let early = plan.statements[*statement].as_ref();
            own.revisions = early.map(Revisions::new);
        }
        self
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
            Item::Rows(mut chunk) => {
                let OutputStatement { form, revisions } = &mut self.statements[statement];
                if let Some(revisions) = revisions {
                    chunk = revisions.final_rows(chunk);
                }
                self.made[statement] += chunk.rows() as u64;
                Item::Rows(form.apply(chunk))
            }
            other => other,
        };
        let mut merged = Vec::new();
        push_to(&mut self.merge, statement, item, &mut merged);
        merged
            .into_iter()
            .try_for_each(|chunk| self.send_rows(chunk))
    }

    /// Sends a revision at `time` of the statements with one of these intervals. `rows` are those that they would give
    /// if the input ended there, as (statement, rows).
    pub(crate) fn revise(
        &mut self,
        time: Instant,
        intervals: &[Duration],
        rows: Vec<(usize, Chunk)>,
    ) -> Result<(), EndpointError> {
        if time < self.since {
            return Ok(());
        }
        let mut merge = Merge::new(self.statements.len());
        let mut merged = Vec::new();
        for (statement, chunk) in rows {
            let OutputStatement { form, revisions } = &mut self.statements[statement];
            let revisions = revisions.as_mut();
            let due = revisions.filter(|revisions| intervals.contains(&revisions.every));
            let Some(revisions) = due else { continue };
            let chunk = revisions.early_rows(time, &chunk);
            if chunk.rows() > 0 {
                self.made[statement] += chunk.rows() as u64;
                let item = Item::Rows(form.apply(chunk));
                push_to(&mut merge, statement, item, &mut merged);
            }
        }
        for statement in 0..self.statements.len() {
            let end = Item::Watermark(Instant::AFTER_ALL);
            push_to(&mut merge, statement, end, &mut merged);
        }
        let is_due = |revisions: &Revisions| intervals.contains(&revisions.every);
        self.withdraw(Some(time), is_due)?;
        merged.into_iter().try_for_each(|mut chunk| {
            // Final rows from here on are not earlier.
            chunk.times = vec![time.ticks(); chunk.rows()].into();
            self.send_rows(chunk)
        })
    }

    /// Withdraws all rows that were sent early and did not become final. Time has ended.
    pub(crate) fn end_revisions(&mut self) -> Result<(), EndpointError> {
        self.withdraw(None, |_| true)
    }

    fn withdraw(
        &mut self,
        time: Option<Instant>,
        is_due: impl Fn(&Revisions) -> bool,
    ) -> Result<(), EndpointError> {
        for statement in 0..self.statements.len() {
            let OutputStatement { form, revisions } = &mut self.statements[statement];
            let due = revisions.as_mut().filter(|revisions| is_due(revisions));
            let Some(mut chunk) = due.and_then(|revisions| revisions.withdraw(time)) else {
                continue;
            };
            self.made[statement] += chunk.rows() as u64;
            if time.is_none() {
                chunk.times = vec![self.last.ticks(); chunk.rows()].into();
            }
            let chunk = form.apply(chunk);
            self.send_rows(chunk)?;
        }
        Ok(())
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
        self.last = chunk.time(chunk.rows() - 1);
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

    pub(crate) fn state_bytes(&self) -> usize {
        let revisions = self.revisions().map(Revisions::state_bytes);
        self.merge.state_bytes() + revisions.sum::<usize>()
    }

    fn revisions(&self) -> impl Iterator<Item = &Revisions> {
        let statements = self.statements.iter();
        statements.filter_map(|statement| statement.revisions.as_ref())
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        out.u64(self.next);
        let mut merge = Vec::new();
        self.merge.snapshot(&mut merge);
        out.blob(&merge);
        if self.revisions().next().is_some() {
            out.i64(self.last.ticks());
        }
        self.revisions()
            .for_each(|revisions| revisions.snapshot(out));
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.next = from.u64()?;
        self.merge.restore(&mut Reader::new(from.blob()?))?;
        if self.revisions().next().is_some() {
            self.last = Instant::from_ticks(from.i64()?);
        }
        let statements = self.statements.iter_mut();
        let mut revisions = statements.filter_map(|statement| statement.revisions.as_mut());
        revisions.try_for_each(|revisions| revisions.restore(from))
    }
}

/// Pushes an item into a merge and appends the rows that leave it.
fn push_to(merge: &mut Merge, port: usize, item: Item, out: &mut Vec<Chunk>) {
    let mut merged = Vec::new();
    let mut context = Context {
        out: &mut merged,
        errors: &mut DataErrors::default(),
        budget: &OutputBudget::default(),
        trace: None,
    };
    merge.push(port, item, &mut context);
    out.extend(merged.into_iter().filter_map(|item| match item {
        Item::Rows(chunk) => Some(chunk),
        _ => None,
    }));
}
