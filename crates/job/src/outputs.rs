//! The outputs of a job over files: files, standard output or memory, each an endpoint that is called in place.
//!
//! Outputs of the same file or standard output share an endpoint. Their rows are merged by time and then by statement,
//! and each line of JSON of several outputs is prefixed with the output's name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use highwater_connect::json::JsonWriter;
use highwater_connect::{
    Endpoint, EndpointError, EndpointFuture, FileSink, OpenSink, OutputFormat, RowNames, Sink,
    SinkEndpoint, SinkError, SinkTarget, StdoutSink,
};
use highwater_query::plan::{Name, Plan};
use highwater_time::Instant;

use crate::combiner::{OutputRouting, StatementPort};
use crate::config::JobFile;
use crate::early::{EarlyPlan, output_columns};
use crate::output_merge::{OutputMerge, OutputMessage, OutputPort, RowForm};
use crate::report::OutputReport;
use crate::side_output::SideOutput;

/// The opened outputs of a job over files.
pub struct Outputs {
    pub(crate) routing: OutputRouting,
    /// Per endpoint, the names of the outputs whose statements write to it.
    names: Vec<Vec<String>>,
    /// The output for dead letters.
    dead_letters: Option<String>,
    /// Set if an output has early results.
    pub(crate) early: Option<Arc<EarlyPlan>>,
}

/// Everything that was written, by output name.
pub type CollectedOutputs = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A file, standard output or memory.
#[derive(Clone, PartialEq)]
struct Target {
    medium: Medium,
    format: OutputFormat,
}

#[derive(Clone, PartialEq)]
enum Medium {
    File(PathBuf),
    Stdout,
    Memory(String),
    Discard,
}

/// The statements and side rows that one endpoint takes.
struct Group {
    target: Target,
    /// Indexes in `Plan::outputs`.
    statements: Vec<usize>,
    has_dead_letters: bool,
}

impl Outputs {
    /// The outputs of the job file; undeclared ones go to standard output.
    pub fn declared(file: &JobFile, plan: &Plan) -> Result<Outputs, EndpointError> {
        let target = |output: &str| {
            let target = declared_target(file, output);
            Target {
                medium: target.path.map_or(Medium::Stdout, Medium::File),
                format: target.format,
            }
        };
        Outputs::open(
            plan,
            target,
            file.dead_letter.as_deref(),
            None,
            early_plan(file, plan),
        )
    }

    /// Collects all rows in memory, as lines of JSON.
    pub fn collected(plan: &Plan) -> (Outputs, CollectedOutputs) {
        Outputs::in_memory(plan, None, |_| OutputFormat::JsonLines, None)
    }

    /// Collects rows and dead letters in memory, in the formats of the job file.
    pub fn collected_as_declared(file: &JobFile, plan: &Plan) -> (Outputs, CollectedOutputs) {
        let format = |output: &str| declared_target(file, output).format;
        let dead_letters = file.dead_letter.as_deref();
        Outputs::in_memory(plan, dead_letters, format, early_plan(file, plan))
    }

    fn in_memory(
        plan: &Plan,
        dead_letters: Option<&str>,
        format: impl Fn(&str) -> OutputFormat,
        early: Option<Arc<EarlyPlan>>,
    ) -> (Outputs, CollectedOutputs) {
        let collected = CollectedOutputs::default();
        let target = |output: &str| Target {
            medium: Medium::Memory(output.to_owned()),
            format: format(output),
        };
        match Outputs::open(plan, target, dead_letters, Some(&collected), early) {
            Ok(outputs) => (outputs, collected),
            Err(_) => unreachable!("memory takes every row"),
        }
    }

    /// Discards all rows, for a run that only traces events.
    pub fn discarded(plan: &Plan) -> Outputs {
        let discard = |_: &str| Target {
            medium: Medium::Discard,
            format: OutputFormat::JsonLines,
        };
        match Outputs::open(plan, discard, None, None, None) {
            Ok(outputs) => outputs,
            Err(_) => unreachable!("nothing is opened"),
        }
    }

    fn open(
        plan: &Plan,
        target: impl Fn(&str) -> Target,
        dead_letters: Option<&str>,
        collected: Option<&CollectedOutputs>,
        early: Option<Arc<EarlyPlan>>,
    ) -> Result<Outputs, EndpointError> {
        let groups = groups(plan, target, dead_letters);
        let mut outputs = Outputs {
            routing: OutputRouting {
                outputs: Vec::new(),
                statements: vec![StatementPort::default(); plan.outputs.len()],
                dead_letters: None,
                late_events: None,
            },
            names: Vec::new(),
            dead_letters: dead_letters.map(str::to_owned),
            early: None,
        };
        for (output, group) in groups.into_iter().enumerate() {
            let routing = &mut outputs.routing;
            for (port, statement) in group.statements.iter().enumerate() {
                routing.statements[*statement] = StatementPort { output, port };
            }
            if let Some(name) = dead_letters.filter(|_| group.has_dead_letters) {
                let form = group.dead_letter_form(name);
                routing.dead_letters = Some(SideOutput::in_reading_order(output, form));
            }
            let names = group.statements.iter();
            let names = names.map(|statement| plan.outputs[*statement].name.clone());
            outputs.names.push(names.collect());
            let columns = |statement| output_columns(plan, statement, early.as_deref());
            let port = InlineOutput(Box::new(group.endpoint(columns, collected)?));
            let forms = group.forms(plan, columns);
            let mut merge = OutputMerge::new(forms, Instant::BEFORE_ALL, Box::new(port));
            if let Some(early) = &early {
                merge = merge.with_revisions(early, &group.statements);
            }
            routing.outputs.push(merge);
        }
        outputs.early = early;
        Ok(outputs)
    }
}

/// The rows of each output, and the number of dead letters.
pub(crate) struct WrittenRows {
    pub outputs: Vec<OutputReport>,
    pub dead_letters: u64,
}

/// The names of the outputs, without the parts that the combiner owns.
pub(crate) struct OutputNames {
    names: Vec<Vec<String>>,
    dead_letters: Option<String>,
}

impl Outputs {
    pub(crate) fn into_parts(self) -> (OutputRouting, OutputNames) {
        let names = OutputNames {
            names: self.names,
            dead_letters: self.dead_letters,
        };
        (self.routing, names)
    }
}

impl OutputNames {
    pub(crate) fn report(self, outputs: &[OutputMerge], side: Option<&SideOutput>) -> WrittenRows {
        let mut reports: Vec<OutputReport> = Vec::new();
        for (output, names) in outputs.iter().zip(&self.names) {
            for (name, rows) in names.iter().zip(output.made()) {
                let same = |report: &OutputReport| report.name.eq_ignore_ascii_case(name);
                let known = reports.iter().position(same);
                let index = known.unwrap_or_else(|| {
                    reports.push(OutputReport {
                        name: name.clone(),
                        ..OutputReport::default()
                    });
                    reports.len() - 1
                });
                reports[index].rows += rows;
                reports[index].notes.extend(output.note());
                reports[index].notes.dedup();
            }
        }
        let dead_letters = side.map_or(0, SideOutput::rows);
        reports.extend(self.dead_letters.map(|name| OutputReport {
            name,
            rows: dead_letters,
            notes: Vec::new(),
        }));
        WrittenRows {
            outputs: reports,
            dead_letters,
        }
    }
}

/// The endpoints in the order of the query; that of dead letters is last, unless it has rows as well.
fn groups(plan: &Plan, target: impl Fn(&str) -> Target, dead_letters: Option<&str>) -> Vec<Group> {
    let mut groups = Vec::new();
    for (statement, output) in plan.outputs.iter().enumerate() {
        let group = group_of(&mut groups, target(&output.name));
        group.statements.push(statement);
    }
    if let Some(name) = dead_letters {
        group_of(&mut groups, target(name)).has_dead_letters = true;
    }
    groups
}

/// The group of a target; adds it if it is new.
fn group_of(groups: &mut Vec<Group>, target: Target) -> &mut Group {
    let known = groups.iter().position(|group| group.target == target);
    let index = known.unwrap_or(groups.len());
    if known.is_none() {
        groups.push(Group {
            target,
            statements: Vec::new(),
            has_dead_letters: false,
        });
    }
    &mut groups[index]
}

impl Group {
    /// Several statements write here, so the columns differ.
    fn is_shared(&self) -> bool {
        self.statements.len() + usize::from(self.has_dead_letters) > 1
    }

    /// Dead letters alone are always lines of JSON.
    fn format(&self) -> OutputFormat {
        match self.statements.is_empty() {
            true => OutputFormat::JsonLines,
            false => self.target.format,
        }
    }

    fn is_lines(&self) -> bool {
        self.format() == OutputFormat::JsonLines
    }

    /// `columns` has the columns of each statement.
    fn endpoint(
        &self,
        columns: impl Fn(usize) -> Vec<Name>,
        collected: Option<&CollectedOutputs>,
    ) -> Result<SinkEndpoint, EndpointError> {
        let open = self.target.medium.opener(collected.cloned());
        match &self.statements[..] {
            _ if self.is_shared() && self.is_lines() => SinkEndpoint::of_text_lines(open),
            [only] if !self.is_shared() => SinkEndpoint::new(open, self.format(), columns(*only)),
            _ => SinkEndpoint::new(open, self.format(), vec![Name::Spread]),
        }
    }

    /// Per statement.
    fn forms(&self, plan: &Plan, columns: impl Fn(usize) -> Vec<Name>) -> Vec<RowForm> {
        let output = |statement: usize| &plan.outputs[statement];
        let first = self.statements.first().map(|first| &output(*first).name);
        let has_several_outputs = self.statements.iter().any(|statement| {
            first.is_some_and(|first| !output(*statement).name.eq_ignore_ascii_case(first))
        });
        let form = |statement: &usize| {
            let (output, names) = (output(*statement), columns(*statement));
            match (self.is_shared(), self.is_lines()) {
                (false, _) => RowForm::Columns,
                (true, false) => RowForm::Record(RowNames::new(names)),
                (true, true) => RowForm::Line {
                    writer: JsonWriter::new(names),
                    prefix: match has_several_outputs {
                        true => format!("{}\t", output.name),
                        false => String::new(),
                    },
                },
            }
        };
        self.statements.iter().map(form).collect()
    }

    fn dead_letter_form(&self, name: &str) -> RowForm {
        match self.is_shared() && self.is_lines() {
            true => RowForm::Line {
                writer: JsonWriter::new(vec![Name::Spread]),
                prefix: format!("{name}\t"),
            },
            false => RowForm::Columns,
        }
    }
}

/// The early results of a job that was loaded, so that its settings fit the query.
fn early_plan(file: &JobFile, plan: &Plan) -> Option<Arc<EarlyPlan>> {
    let early = EarlyPlan::of(file, plan).ok();
    early.flatten().map(Arc::new)
}

/// The target of an output in the job file; standard output by default. Only live jobs have other targets.
fn declared_target(file: &JobFile, output: &str) -> SinkTarget {
    let declared = file.output(output);
    let target = declared.and_then(|output| output.settings.sink_target(&file.folder));
    target.unwrap_or(SinkTarget {
        path: None,
        format: OutputFormat::default(),
    })
}

impl Medium {
    fn opener(&self, collected: Option<CollectedOutputs>) -> OpenSink {
        let medium = self.clone();
        Box::new(move |part| {
            Ok(match (&medium, &collected) {
                (Medium::File(path), _) => Box::new(FileSink::create(part_path(path, part))?),
                (Medium::Memory(output), Some(collected)) => Box::new(MemorySink {
                    output: match part {
                        1 => output.clone(),
                        part => format!("{output}-{part}"),
                    },
                    collected: collected.clone(),
                }),
                (Medium::Discard, _) => Box::new(DiscardSink),
                (Medium::Stdout | Medium::Memory(_), _) => Box::new(StdoutSink::new()),
            })
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

/// An endpoint that is called in place.
struct InlineOutput(Box<dyn Endpoint>);

impl OutputPort for InlineOutput {
    fn send(&mut self, message: OutputMessage) -> Result<(), EndpointError> {
        match message {
            OutputMessage::Rows(rows) => immediate(self.0.write(&rows)),
            OutputMessage::Advance(watermark) => immediate(self.0.advance(watermark)),
            OutputMessage::Settle(_) => immediate(self.0.checkpoint()).map(drop),
        }
    }

    fn note(&self) -> Option<String> {
        self.0.note()
    }
}

/// The result of a future that is ready at once, as those of [`SinkEndpoint`] are.
fn immediate<T>(mut future: EndpointFuture<'_, T>) -> Result<T, EndpointError> {
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("an endpoint that is called in place never waits"),
    }
}

struct MemorySink {
    output: String,
    collected: CollectedOutputs,
}

struct DiscardSink;

impl Sink for DiscardSink {
    fn write(&mut self, _bytes: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Sink for MemorySink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        let mut collected = self
            .collected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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
