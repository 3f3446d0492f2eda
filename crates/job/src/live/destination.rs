//! The rows of one output, numbered.
//!
//! Several statements may write to one output; their rows are merged by time and then by statement, so that the numbers
//! do not depend on which statement was faster. Where their columns differ, each row becomes one record.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::{RowNames, Rows};
use highwater_engine::{Chunk, Column, Context, DataErrors, Item, Merge, Operator};
use highwater_query::plan::{Name, Plan};
use highwater_time::Instant;
use tokio::sync::mpsc;

use super::status::StatusHandle;
use crate::outputs::names;

/// What an output is told, in order.
pub(super) enum OutputMessage {
    Rows(Rows),
    /// Every row before this time has been handed over.
    Advance(Instant),
    /// A checkpoint of that number is taken here.
    Settle(u64),
}

/// The output is gone, and with it the job.
#[derive(Debug)]
pub(super) struct OutputClosed;

/// What the rows of an output look like, and which statements make them.
pub(super) struct OutputSchema {
    pub output: String,
    /// The names of the columns.
    pub names: Vec<Name>,
    /// PartitionSet in `Plan::outputs`, with what makes records of their rows where that is needed.
    statements: Vec<(usize, Option<RowNames>)>,
}

/// The outputs of a plan in the order in which the query names them.
pub(super) fn output_schemas(plan: &Plan) -> Vec<OutputSchema> {
    let mut output_schemas: Vec<OutputSchema> = Vec::new();
    for (statement, output) in plan.outputs.iter().enumerate() {
        let same = |shape: &&mut OutputSchema| shape.output.eq_ignore_ascii_case(&output.name);
        match output_schemas.iter_mut().find(same) {
            Some(shape) => shape.statements.push((statement, None)),
            None => output_schemas.push(OutputSchema {
                output: output.name.clone(),
                names: names(plan, output.from),
                statements: vec![(statement, None)],
            }),
        }
    }
    for shape in &mut output_schemas {
        let of = |statement: usize| names(plan, plan.outputs[statement].from);
        if shape
            .statements
            .iter()
            .all(|(other, _)| of(*other) == shape.names)
        {
            continue;
        }
        shape.names = vec![Name::Spread];
        for (statement, records) in &mut shape.statements {
            *records = Some(RowNames::new(of(*statement)));
        }
    }
    output_schemas
}

impl OutputSchema {
    /// For rows that no statement makes.
    pub fn of_letters(output: &str) -> OutputSchema {
        OutputSchema {
            output: output.to_owned(),
            names: vec![Name::Spread],
            statements: Vec::new(),
        }
    }

    pub fn statements(&self) -> impl Iterator<Item = usize> {
        self.statements.iter().map(|(statement, _)| *statement)
    }
}

pub(super) struct Destination {
    /// Its place among the outputs of the job.
    index: usize,
    records: Vec<Option<RowNames>>,
    merge: Merge,
    /// The number of the next row.
    next: u64,
    /// Rows before this time are not handed over.
    since: Instant,
    to: mpsc::Sender<OutputMessage>,
    board: StatusHandle,
}

impl Destination {
    pub fn new(
        (index, shape): (usize, &OutputSchema),
        since: Instant,
        to: mpsc::Sender<OutputMessage>,
        board: StatusHandle,
    ) -> Destination {
        Destination {
            index,
            records: shape
                .statements
                .iter()
                .map(|(_, records)| records.clone())
                .collect(),
            merge: Merge::new(shape.statements.len().max(1)),
            next: 0,
            since,
            to,
            board,
        }
    }

    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes an item of one of its statements.
    pub fn take(&mut self, port: usize, item: Item) -> Result<(), OutputClosed> {
        let item = match (item, &self.records[port]) {
            (Item::Rows(chunk), Some(names)) => {
                let rows = Column::Dynamic(Arc::new(names.records(&chunk)));
                Item::Rows(chunk.with_columns(vec![rows]))
            }
            (item, _) => item,
        };
        let mut merged = Vec::new();
        let mut errors = DataErrors::default();
        let mut context = Context {
            out: &mut merged,
            errors: &mut errors,
            trace: None,
        };
        self.merge.push(port, item, &mut context);
        merged.into_iter().try_for_each(|item| match item {
            Item::Rows(chunk) => self.hand_over(chunk),
            _ => Ok(()),
        })
    }

    /// Numbers rows and hands them over.
    pub fn hand_over(&mut self, chunk: Chunk) -> Result<(), OutputClosed> {
        let mut chunk = match chunk.times.iter().all(|time| *time >= self.since.ticks()) {
            true => chunk,
            false => {
                let times = chunk.times.iter();
                let due: BooleanBuffer = times.map(|time| *time >= self.since.ticks()).collect();
                chunk.filter(&due)
            }
        };
        if chunk.rows() == 0 {
            return Ok(());
        }
        (chunk.lanes, chunk.origins) = (None, None);
        let count = chunk.rows() as u64;
        let rows = Rows {
            first: self.next,
            chunk,
        };
        self.next += count;
        let next = self.next;
        self.board.update_output(self.index, |status| {
            status.rows += count;
            status.waiting += count;
            status.next = next;
        });
        self.tell(OutputMessage::Rows(rows))
    }

    pub fn tell(&self, what: OutputMessage) -> Result<(), OutputClosed> {
        self.to.blocking_send(what).map_err(|_| OutputClosed)
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        out.u64(self.next);
        let mut merge = Vec::new();
        self.merge.snapshot(&mut merge);
        out.blob(&merge);
    }

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.next = from.u64()?;
        self.merge.restore(&mut Reader::new(from.blob()?))
    }
}
