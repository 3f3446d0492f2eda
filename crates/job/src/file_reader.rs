//! Reads one file block by block into a stream.

use std::path::Path;
use std::sync::Arc;

use highwater_connect::json::Field;
use highwater_connect::{ReadError, Source};
use highwater_engine::{PhysicalPlan, Value, ValueRef, eval};
use highwater_time::Instant;

use crate::account::shown_file;
use crate::early::{EndPreview, PipelineCopies};
use crate::plan::{InputFormat, InputPlan, PartitionId};
use crate::report::InputErrorKind;
use crate::side_row::{QueryText, StreamLocation};
use crate::stream::{EventBlock, Stream, StreamOutput, StreamPlan, StreamReport};
use crate::timestamp_assigner::TimestampAssigner;

pub(crate) struct FileReader {
    modified: Instant,
    source: Box<dyn Source>,
    stream: Stream,
    ended: bool,
    /// It stops at barriers.
    stops: bool,
}

/// The file, and its number and partitions within the job.
pub(crate) struct FilePlan<'a> {
    pub path: &'a Path,
    /// The number of the file within the job.
    pub number: usize,
    pub partitions: Vec<PartitionId>,
    pub trace: bool,
    pub query: Arc<QueryText>,
}

/// The output of one step of a reader.
pub(crate) struct FileBlock {
    pub output: StreamOutput,
    pub bytes: u64,
    /// The first error of the file so far.
    pub first_error: Option<String>,
}

impl FileReader {
    pub(crate) fn open(
        plan: FilePlan<'_>,
        input: InputPlan,
        physical: &PhysicalPlan,
    ) -> Result<FileReader, ReadError> {
        let (assigner, fields) = TimestampAssigner::new(input, plan.trace);
        let input = assigner.input();
        let source = input.format.open(plan.path, fields, input.dead_letters)?;
        let name = plan.path.display().to_string();
        let plan = StreamPlan {
            number: plan.number,
            location: StreamLocation::File {
                input: input.plan.name.clone(),
                file: shown_file(&name, &input.folder),
            },
            name,
            partitions: plan.partitions,
            trace: plan.trace,
            late_events: false,
            query: plan.query,
        };
        Ok(FileReader {
            modified: Instant::from_unix_nanos(source.modified()),
            source,
            stream: Stream::new(plan, assigner, physical),
            ended: false,
            stops: false,
        })
    }

    pub(crate) fn input(&self) -> usize {
        self.stream.input
    }

    pub(crate) fn location(&self) -> &StreamLocation {
        self.stream.account.location()
    }

    /// From now on stops at barriers.
    pub(crate) fn stop_at_barriers(&mut self, copies: &Arc<PipelineCopies>) {
        self.stream.stop_at_barriers(copies);
        self.stops = true;
    }

    /// Continues up to `barrier`. `None` if the reader does not stop at barriers.
    pub(crate) fn raise_barrier(&mut self, barrier: Instant) -> Option<StreamOutput> {
        if !self.stops {
            return None;
        }
        let mut output = self.stream.new_output();
        self.stream.raise_barrier(barrier, &mut output);
        self.stream.complete(&mut output);
        Some(output)
    }

    /// See [`Stream::preview_end`].
    pub(crate) fn preview_end(&self) -> Result<EndPreview, String> {
        self.stream.preview_end()
    }

    /// Processes the next block of the file; the end of the file ends time. `None` after that.
    pub(crate) fn step(&mut self) -> Option<FileBlock> {
        if self.ended {
            return None;
        }
        let before = self.stream.account.report.bytes;
        let mut output = self.stream.new_output();
        match self.source.next_batch() {
            Ok(Some(events)) => {
                self.stream.account.report.bytes = self.source.bytes_read();
                let file = self.stream.account.name().to_owned();
                let block = EventBlock {
                    events,
                    arrivals: None,
                    bad_arrivals: Vec::new(),
                    file: Some(&file),
                    modified: self.modified,
                };
                self.stream.push(block, &mut output);
            }
            Ok(None) => self.end(&mut output),
            Err(error) => {
                let kind = error.kind();
                let kind = kind.map_or(InputErrorKind::File, |kind| InputErrorKind::of(kind, true));
                let account = &mut self.stream.account;
                account.reject_file(kind, error.to_string(), &mut output.rejected);
                self.end(&mut output);
            }
        }
        self.stream.complete(&mut output);
        Some(FileBlock {
            output,
            bytes: self.stream.account.report.bytes - before,
            first_error: self.stream.first_error(),
        })
    }

    fn end(&mut self, out: &mut StreamOutput) {
        let account = &mut self.stream.account;
        account.report.bytes = self.source.bytes_read();
        match self.source.note() {
            Some(note) if note.is_cut_short() => {
                account.reject_file(InputErrorKind::File, note.to_string(), &mut out.rejected);
            }
            Some(note) => account.report.notes.push(note.to_string()),
            None => {}
        }
        self.ended = true;
        self.stream.end(out);
    }

    /// See [`Stream::finish`].
    pub(crate) fn finish(self) -> StreamReport {
        self.stream.finish()
    }
}

/// The distinct values of the partition column, sorted. Reads the whole file.
pub(crate) fn discover_partitions(
    path: &Path,
    column: &str,
    how: &InputFormat,
) -> Result<Vec<Value>, ReadError> {
    let fields = vec![Field::Path(vec![column.to_string()])];
    let mut source = how.open(path, fields, false)?;
    let mut found = std::collections::BTreeMap::new();
    // Errors are reported when the file is read again.
    while let Ok(Some(events)) = source.next_batch() {
        for row in 0..events.rows {
            let mut key = Vec::new();
            eval::encode_key(events.columns[0].get(row), &mut key);
            found
                .entry(key)
                .or_insert_with(|| events.columns[0].get(row).to_value());
        }
    }
    let mut values: Vec<_> = found.into_values().collect();
    // Values of different types have no order, and a text compared with a number is parsed as one.
    let kind = |value: &Value| match value.view() {
        ValueRef::Null => 0,
        ValueRef::Bit(_) | ValueRef::Int(_) | ValueRef::Float(_) => 1,
        ValueRef::Text(_) => 2,
        _ => 3,
    };
    values.sort_by(|a, b| {
        let order = || eval::compare(a.view(), b.view()).ok().flatten();
        let kinds = kind(a).cmp(&kind(b));
        kinds.then_with(|| order().unwrap_or(std::cmp::Ordering::Equal))
    });
    Ok(values)
}
