//! Collects the results of a playground run: the rows of each output, or the events that they came from.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_connect::json::JsonWriter;
use highwater_connect::{EndpointError, RowNames};
use highwater_engine::{ValueRef, WorkLimit};
use highwater_query::plan::Name;
use highwater_time::Instant;

use super::{PlaygroundOutput, RowSources};
use crate::combiner::{OutputRouting, StatementPort};
use crate::load::Job;
use crate::output_merge::{OutputMerge, OutputMessage, OutputPort, RowForm};
use crate::plan_steps::output_names;

/// How many rows of an output are returned; all are counted.
const ROWS_MAX: usize = 1_000;

/// No more rows of an output are returned after this many bytes.
const ROW_BYTES_MAX: usize = 1 << 20;

/// What is collected of each output.
pub(super) type SharedRows<T> = Arc<Mutex<Vec<T>>>;

pub(super) fn lock<T>(collected: &SharedRows<T>) -> MutexGuard<'_, Vec<T>> {
    collected.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects the rows of an output as JSON, and charges them to the limit.
struct RowCollector {
    output: usize,
    writer: JsonWriter,
    /// The size of the collected rows.
    bytes: usize,
    collected: SharedRows<PlaygroundOutput>,
    limit: Arc<WorkLimit>,
}

impl OutputPort for RowCollector {
    fn send(&mut self, message: OutputMessage) -> Result<(), EndpointError> {
        let OutputMessage::Rows(rows) = message else {
            return Ok(());
        };
        let mut outputs = lock(&self.collected);
        let output = &mut outputs[self.output];
        output.count += rows.chunk.rows() as u64;
        for row in 0..rows.chunk.rows() {
            let is_full = output.rows.len() == ROWS_MAX || self.bytes > ROW_BYTES_MAX;
            if is_full || self.limit.is_reached() {
                break;
            }
            let mut json = Vec::new();
            self.writer.write_rows(&rows.chunk, row..row + 1, &mut json);
            self.limit.charge(json.len() as u64);
            self.bytes += json.len();
            output
                .rows
                .push(String::from_utf8_lossy(&json).trim_end().to_owned());
        }
        Ok(())
    }
}

/// Collects the sources of the rows of an output, which come as records of columns with the numbers of events.
struct SourceCollector {
    output: usize,
    /// The number of the first event of each input.
    first: Arc<[usize]>,
    collected: SharedRows<Vec<Option<RowSources>>>,
    limit: Arc<WorkLimit>,
}

impl OutputPort for SourceCollector {
    fn send(&mut self, message: OutputMessage) -> Result<(), EndpointError> {
        let OutputMessage::Rows(rows) = message else {
            return Ok(());
        };
        let mut outputs = lock(&self.collected);
        let sources = &mut outputs[self.output];
        for row in 0..rows.chunk.rows() {
            if sources.len() == ROWS_MAX || self.limit.is_reached() {
                break;
            }
            let record = match rows.chunk.columns[0].get(row) {
                ValueRef::Record(record) if !record.is_empty() => Some(record),
                _ => None,
            };
            sources.push(record.map(|record| {
                let values = record.iter().map(|(_, value)| value.view());
                RowSources::of_row(values, &self.first)
            }));
        }
        Ok(())
    }
}

pub(super) fn collect_rows(
    job: &Job,
    limit: &Arc<WorkLimit>,
) -> (OutputRouting, SharedRows<PlaygroundOutput>) {
    let outputs = output_names(job).into_iter().map(|name| PlaygroundOutput {
        name,
        ..PlaygroundOutput::default()
    });
    let collected: SharedRows<_> = Arc::new(Mutex::new(outputs.collect()));
    let routing = route(job, |output, statements| {
        let columns = |statement: usize| job.plan.column_names(job.plan.outputs[statement].from);
        let (forms, names) = match statements {
            [only] => (vec![RowForm::Columns], columns(*only)),
            several => {
                let forms = several.iter();
                let forms =
                    forms.map(|statement| RowForm::Record(RowNames::new(columns(*statement))));
                (forms.collect(), vec![Name::Spread])
            }
        };
        let port = RowCollector {
            output,
            writer: JsonWriter::new(names),
            bytes: 0,
            collected: collected.clone(),
            limit: limit.clone(),
        };
        OutputMerge::new(forms, Instant::BEFORE_ALL, Box::new(port))
    });
    (routing, collected)
}

/// `columns` are those with the numbers of events, per statement.
pub(super) fn collect_sources(
    job: &Job,
    columns: &[Vec<usize>],
    first: Vec<usize>,
    limit: &Arc<WorkLimit>,
) -> (OutputRouting, SharedRows<Vec<Option<RowSources>>>) {
    let collected: SharedRows<_> = Arc::new(Mutex::new(vec![Vec::new(); output_names(job).len()]));
    let first: Arc<[usize]> = first.into();
    let routing = route(job, |output, statements| {
        let form = |statement: &usize| {
            let width = job
                .plan
                .column_names(job.plan.outputs[*statement].from)
                .len();
            let names = (0..width).map(|column| match columns[*statement].contains(&column) {
                true => Name::Field(column.to_string()),
                false => Name::Hidden(String::new()),
            });
            RowForm::Record(RowNames::new(names.collect()))
        };
        let port = SourceCollector {
            output,
            first: first.clone(),
            collected: collected.clone(),
            limit: limit.clone(),
        };
        let forms = statements.iter().map(form).collect();
        OutputMerge::new(forms, Instant::BEFORE_ALL, Box::new(port))
    });
    (routing, collected)
}

/// Routes the statements of each output to the merge that `merge` creates.
fn route(job: &Job, mut merge: impl FnMut(usize, &[usize]) -> OutputMerge) -> OutputRouting {
    let plan = &job.plan;
    let mut routing = OutputRouting {
        outputs: Vec::new(),
        statements: vec![StatementPort::default(); plan.outputs.len()],
        dead_letters: None,
        late_events: None,
    };
    for (output, name) in output_names(job).iter().enumerate() {
        let statements = plan.outputs.iter().enumerate();
        let statements = statements.filter(|(_, of)| of.name.eq_ignore_ascii_case(name));
        let statements: Vec<usize> = statements.map(|(index, _)| index).collect();
        for (port, statement) in statements.iter().enumerate() {
            routing.statements[*statement] = StatementPort { output, port };
        }
        routing.outputs.push(merge(output, &statements));
    }
    routing
}
