//! Reference data: tables read whole before the first event; a live job loads new snapshots (`effective_snapshots.rs`).
//!
//! The files or folders of an input with `reference = true` form one static table. A path with `{date}` names a
//! refreshed table: each matching file is (part of) a snapshot, and an event sees the newest snapshot in effect at its
//! event time. `{date}` stands for `2026-01-31` or `2026/01/31`, `{time}` for `23-59` or `23/59`, both in UTC; without
//! `{time}` a snapshot takes effect at midnight. The rest of the path must match exactly, except that a pattern that
//! ends in a folder stands for the JSON files in it.
//!
//! ```toml
//! [inputs.Registration]
//! path = "registration/{date}/{time}/vehicles.jsonl"
//! reference = true
//! ```
//!
//! Unreadable lines are counted and dropped, like those of a stream. A missing file is an error: a join with half a
//! table gives wrong answers that look right.

mod effective_snapshots;
mod table_copies;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_connect::json::Field;
use highwater_connect::{BadEvent, Format, Level, ReadError, ValueDecoder};
use highwater_engine::{Chunk, Column, PhysicalPlan, PhysicalPlanError, ReferenceTable, ValueRef};
use highwater_env::disk;
use highwater_query::plan::{Read, Reference};
use highwater_time::{Duration, Instant};

use crate::config::{FilesError, Input};
use crate::load::Job;
use crate::plan::InputFormat;
use crate::report::{InputErrorKind, InputErrorSample, InputReport};
pub(crate) use effective_snapshots::{EffectiveSnapshots, SnapshotListing};
pub(crate) use table_copies::{TableCopies, read_rows, write_rows};

#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("error: {0}")]
    PhysicalPlan(#[from] PhysicalPlanError),
    #[error("error: {0}")]
    Files(#[from] FilesError),
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error(
        "error: no file matches the path {pattern} of the reference input \"{input}\"; {{date}} stands for \
         2026-01-31 or 2026/01/31, {{time}} for 23-59 or 23/59"
    )]
    NoSnapshot { input: String, pattern: String },
    #[error(
        "error: the path {pattern} of the reference input \"{input}\" has {{time}} but no {{date}}"
    )]
    TimeWithoutDate { input: String, pattern: String },
}

/// The tables of a job.
#[derive(Default)]
pub(crate) struct References {
    /// The plan with its tables; `None` without any.
    pub physical: Option<PhysicalPlan>,
    /// One report for each input.
    pub reports: Vec<InputReport>,
    /// The static tables in use.
    pub copies: TableCopies,
}

/// Reads all reference data of a job.
pub(crate) fn load_all(job: &Job) -> Result<References, ReferenceError> {
    load_with(job, &|_, named| Some(named), &TableCopies::default())
}

/// Reads the snapshots in effect; static tables come from their copies.
pub(crate) fn load_effective(
    job: &Job,
    snapshots: &EffectiveSnapshots,
    copied: &TableCopies,
) -> Result<References, ReferenceError> {
    load_with(
        job,
        &|input, named| snapshots.effective_from(input, named),
        copied,
    )
}

/// Reads the tables, each snapshot by the time in its path.
pub(crate) fn read_tables(job: &Job) -> Result<LoadedTables, ReferenceError> {
    read_with(job, &|_, named| Some(named), &TableCopies::default())
}

/// The plan of a job with one table for each of its references.
pub(crate) fn plan_with_tables(
    job: &Job,
    tables: &[Arc<ReferenceTable>],
) -> Result<PhysicalPlan, PhysicalPlanError> {
    let physical = PhysicalPlan::with_references(job.plan.clone(), tables)?;
    Ok(physical.with_scripts(job.scripts.clone()))
}

/// The time from which a snapshot of an input, named by its time, is in effect; `None` if it never is.
type EffectiveFrom<'a> = &'a dyn Fn(&str, Instant) -> Option<Instant>;

/// The data read for the references of a plan, in their order.
pub(crate) struct LoadedTables {
    pub tables: Vec<Arc<ReferenceTable>>,
    /// One report for each input.
    pub reports: Vec<InputReport>,
}

fn load_with(
    job: &Job,
    effective_from: EffectiveFrom<'_>,
    copied: &TableCopies,
) -> Result<References, ReferenceError> {
    let LoadedTables { tables, reports } = read_with(job, effective_from, copied)?;
    let mut copies = TableCopies::default();
    for (index, table) in tables.iter().enumerate() {
        copies.add(index, table);
    }
    let physical = match tables.is_empty() {
        true => None,
        false => Some(plan_with_tables(job, &tables)?),
    };
    Ok(References {
        physical,
        reports,
        copies,
    })
}

fn read_with(
    job: &Job,
    effective_from: EffectiveFrom<'_>,
    copied: &TableCopies,
) -> Result<LoadedTables, ReferenceError> {
    let mut reports: Vec<InputReport> = Vec::new();
    let mut tables = Vec::new();
    for (index, reference) in job.plan.references.iter().enumerate() {
        let Some(declared) = job.file.input(&reference.name) else {
            unreachable!("the query was bound against the inputs of the job file")
        };
        let copy = copied.get(index);
        let (table, report) = load(
            reference,
            declared,
            job.file.compatibility,
            effective_from,
            copy,
        )?;
        tables.push(Arc::new(table));
        // A table is read once for each use in the query, but reported once.
        if !reports.iter().any(|known| known.name == report.name) {
            reports.push(report);
        }
    }
    Ok(LoadedTables { tables, reports })
}

impl References {
    /// The first error, if any.
    pub(crate) fn first_error(&self) -> Option<String> {
        let samples = |report: &InputReport| {
            let mut errors = report.errors.iter();
            let sample = errors.find_map(|(_, sum)| sum.samples.first().cloned())?;
            Some(format!(
                "{}:{}: {}",
                sample.file, sample.line, sample.reason
            ))
        };
        self.reports.iter().find_map(samples)
    }
}

/// Reads a table.
fn load(
    reference: &Reference,
    input: &Input,
    level: Level,
    effective_from: EffectiveFrom<'_>,
    copy: Option<&Chunk>,
) -> Result<(ReferenceTable, InputReport), ReferenceError> {
    let format = InputFormat {
        format: input.format,
        compression: input.compression,
        level,
        declared: reference.schema.clone(),
    };
    let mut report = InputReport {
        name: reference.name.clone(),
        ..InputReport::default()
    };
    let mut table = ReferenceTable::default();
    let mut snapshots = dated_files(input)?;
    match copy {
        Some(copy) => table.snapshots.push((Instant::BEFORE_ALL, copy.clone())),
        None => snapshots.extend(static_files(input)?),
    }
    for (named, files) in snapshots {
        let Some(from) = effective_from(&input.name, named) else {
            continue;
        };
        let mut blocks = TableBlocks::default();
        for file in files {
            read_file(&file, &format, &reference.reads, &mut blocks, &mut report)?;
        }
        report.time.read += blocks.rows.len() as u64;
        report.time.kept += blocks.rows.len() as u64;
        let chunk = blocks.finish(from, reference.reads.len());
        table.snapshots.push((from, chunk));
    }
    Ok((table, report))
}

/// The files of each snapshot, by the time at which it takes effect.
fn snapshot_files(input: &Input) -> Result<BTreeMap<Instant, Vec<PathBuf>>, ReferenceError> {
    let mut snapshots = dated_files(input)?;
    snapshots.extend(static_files(input)?);
    Ok(snapshots)
}

/// The files without a time in their paths.
fn static_files(input: &Input) -> Result<Option<(Instant, Vec<PathBuf>)>, ReferenceError> {
    let fixed = input.paths.iter().filter(|path| !is_pattern(path));
    let fixed = Input {
        paths: fixed.cloned().collect(),
        ..input.clone()
    };
    match fixed.paths.is_empty() {
        true => Ok(None),
        false => Ok(Some((Instant::BEFORE_ALL, fixed.files()?))),
    }
}

fn dated_files(input: &Input) -> Result<BTreeMap<Instant, Vec<PathBuf>>, ReferenceError> {
    let mut snapshots: BTreeMap<Instant, Vec<PathBuf>> = BTreeMap::new();
    for path in input.paths.iter().filter(|path| is_pattern(path)) {
        let pattern = path.to_string_lossy().into_owned();
        let input = input.name.clone();
        if !pattern.contains(DATE) {
            return Err(ReferenceError::TimeWithoutDate { input, pattern });
        }
        let files = matching_files(path)?;
        if files.is_empty() {
            return Err(ReferenceError::NoSnapshot { input, pattern });
        }
        for (from, file) in files {
            snapshots.entry(from).or_default().push(file);
        }
    }
    Ok(snapshots)
}

/// Whether the path contains `{date}` or `{time}`.
pub(crate) fn is_pattern(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.contains(DATE) || path.contains(TIME)
}

const DATE: &str = "{date}";
const TIME: &str = "{time}";

/// `{date}` and `{time}` match up to five folders; a folder pattern adds a file name.
const EXTRA_DEPTH: usize = 6;

/// The files that match the pattern, each with its time.
fn matching_files(pattern: &Path) -> Result<Vec<(Instant, PathBuf)>, FilesError> {
    let folder = fixed_folder(pattern);
    let relative = slash_path(pattern.strip_prefix(&folder).unwrap_or(pattern));
    let mut files = Vec::new();
    let depth = relative.matches('/').count() + EXTRA_DEPTH;
    walk(&folder, depth, &mut |file| {
        let name = slash_path(file.strip_prefix(&folder).unwrap_or(file));
        if let Some(from) = match_pattern(&relative, &name) {
            files.push((from, file.to_owned()));
        }
    })?;
    Ok(files)
}

/// The part of a path before its first pattern.
pub(crate) fn fixed_folder(pattern: &Path) -> PathBuf {
    let is_fixed =
        |part: &std::path::Component<'_>| !part.as_os_str().to_string_lossy().contains('{');
    pattern.components().take_while(is_fixed).collect()
}

/// A relative path with `/` on every system.
fn slash_path(path: &Path) -> String {
    let parts: Vec<_> = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    parts.join("/")
}

fn walk(folder: &Path, depth: usize, visit: &mut impl FnMut(&Path)) -> Result<(), FilesError> {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let listed = disk::list(here).map_err(|source| FilesError::Unreadable {
        path: here.to_owned(),
        source,
    })?;
    for path in listed {
        if !path.is_dir() {
            visit(path.strip_prefix(".").unwrap_or(&path));
        } else if depth > 0 {
            walk(&path, depth - 1, visit)?;
        }
    }
    Ok(())
}

/// The time in `name` if it matches the pattern.
fn match_pattern(pattern: &str, name: &str) -> Option<Instant> {
    let mut time = PathTime::default();
    let rest = time.consume(pattern, name)?;
    let in_folder = rest.strip_prefix('/').is_some_and(|file| {
        let extension = Path::new(file).extension().and_then(|e| e.to_str());
        !file.contains('/') && matches!(extension, Some("jsonl" | "json" | "ndjson"))
    });
    (rest.is_empty() || in_folder).then(|| time.instant())?
}

/// The date and time in a path.
#[derive(Default)]
struct PathTime {
    day: Option<Instant>,
    minutes: i64,
}

impl PathTime {
    /// Matches the whole pattern and returns the rest of the name.
    fn consume<'n>(&mut self, mut pattern: &str, mut name: &'n str) -> Option<&'n str> {
        while !pattern.is_empty() {
            if let Some(rest) = pattern.strip_prefix(DATE) {
                let numbers;
                (numbers, name) = parse_numbers([4, 2, 2], name)?;
                let [year, month, day] = numbers;
                self.day = Some(Instant::from_civil(year as i32, month, day)?);
                pattern = rest;
            } else if let Some(rest) = pattern.strip_prefix(TIME) {
                let numbers;
                (numbers, name) = parse_numbers([2, 2], name)?;
                let [hour, minute] = numbers;
                if hour > 23 || minute > 59 {
                    return None;
                }
                self.minutes = i64::from(hour * 60 + minute);
                pattern = rest;
            } else {
                let mut literal = pattern.chars();
                name = name.strip_prefix(literal.next()?)?;
                pattern = literal.as_str();
            }
        }
        Some(name)
    }

    fn instant(&self) -> Option<Instant> {
        let day = self.day?;
        let since = Duration::from_minutes(self.minutes);
        Some(Instant::from_ticks(day.ticks() + since.ticks()))
    }
}

/// Numbers of the given digits, separated by `-` or by `/` throughout.
fn parse_numbers<const N: usize>(digits: [usize; N], name: &str) -> Option<([u32; N], &str)> {
    let separator = name.get(digits[0]..)?.chars().next()?;
    if separator != '-' && separator != '/' {
        return None;
    }
    let (mut numbers, mut rest) = ([0; N], name);
    for (index, &digits) in digits.iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(separator)?;
        }
        let number = rest.get(..digits)?;
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        numbers[index] = number.parse().ok()?;
        rest = &rest[digits..];
    }
    Some((numbers, rest))
}

/// The columns of a table, block by block.
#[derive(Default)]
struct TableBlocks {
    blocks: Vec<Vec<Column>>,
    /// All rows as (block, row).
    rows: Vec<(u32, u32)>,
}

impl TableBlocks {
    fn add(&mut self, columns: Vec<Column>, rows: usize) {
        let block = self.blocks.len() as u32;
        self.rows.extend((0..rows as u32).map(|row| (block, row)));
        self.blocks.push(columns);
    }

    fn finish(self, from: Instant, width: usize) -> Chunk {
        let columns = (0..width).map(|column| {
            let parts: Vec<&Column> = self.blocks.iter().map(|block| &block[column]).collect();
            match parts.is_empty() {
                true => Column::Null(0),
                false => Column::interleave(&parts, &self.rows),
            }
        });
        let columns = columns.collect();
        Chunk::new(vec![from.ticks(); self.rows.len()].into(), columns)
    }
}

fn read_file(
    path: &Path,
    format: &InputFormat,
    reads: &[Read],
    blocks: &mut TableBlocks,
    report: &mut InputReport,
) -> Result<(), ReferenceError> {
    let fields: Vec<Field> = reads.iter().filter_map(field_of).collect();
    let mut source = format.open(path, fields, false)?;
    let name = path.display().to_string();
    let modified = Instant::from_unix_nanos(source.modified());
    while let Some(decoded) = source.next_batch()? {
        for bad in &decoded.bad {
            report_bad_event(bad, &name, report);
        }
        let rows = decoded.rows;
        if rows == 0 {
            continue;
        }
        let mut columns = decoded.columns.into_iter();
        let columns = reads.iter().map(|read| match read {
            Read::FileName => Column::repeat(ValueRef::Text(&name), rows),
            Read::FileTime => Column::repeat(ValueRef::Time(modified), rows),
            other if field_of(other).is_some() => columns.next().unwrap_or(Column::Null(rows)),
            _ => Column::Null(rows),
        });
        blocks.add(columns.collect(), rows);
    }
    report.bytes += source.bytes_read();
    if let Some(note) = source.note() {
        report.notes.push(note.to_string());
    }
    Ok(())
}

/// A table of values that are each a row as JSON. The error is for the user.
pub(crate) fn table_of_values<'a>(
    reference: &Reference,
    values: impl Iterator<Item = &'a [u8]>,
) -> Result<ReferenceTable, String> {
    let format = InputFormat {
        format: Some(Format::Json),
        declared: reference.schema.clone(),
        ..InputFormat::default()
    };
    let fields: Vec<Field> = reference.reads.iter().filter_map(field_of).collect();
    let decoder = ValueDecoder::new(format.options(fields, false));
    let mut decoder = decoder.ok_or("the format has no single rows")?;
    for (value, line) in values.zip(1..) {
        decoder.push(value, line);
    }
    let decoded = decoder.finish();
    if let Some(bad) = decoded.bad.first() {
        let (name, line, reason) = (&reference.name, bad.line, &bad.reason);
        return Err(format!(
            "row {line} of the reference input \"{name}\": {reason}"
        ));
    }
    let (mut blocks, rows) = (TableBlocks::default(), decoded.rows);
    if rows > 0 {
        let mut columns = decoded.columns.into_iter();
        let columns = reference.reads.iter().map(|read| match field_of(read) {
            Some(_) => columns.next().unwrap_or(Column::Null(rows)),
            None => Column::Null(rows),
        });
        blocks.add(columns.collect(), rows);
    }
    let chunk = blocks.finish(Instant::BEFORE_ALL, reference.reads.len());
    Ok(ReferenceTable {
        snapshots: vec![(Instant::BEFORE_ALL, chunk)],
    })
}

fn field_of(read: &Read) -> Option<Field> {
    match read {
        Read::Path(path) => Some(Field::Path(path.clone())),
        Read::TimePath(path) => Some(Field::Time(path.clone())),
        Read::Whole => Some(Field::Whole),
        _ => None,
    }
}

fn report_bad_event(bad: &BadEvent, file: &str, report: &mut InputReport) {
    let kind = InputErrorKind::of(bad.kind, false);
    report.errors.add(kind, None, || InputErrorSample {
        file: file.to_owned(),
        line: bad.line,
        reason: bad.reason.clone(),
        event: bad.text.clone(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JobFile;

    fn time(text: &str) -> Option<Instant> {
        Instant::parse_iso(text.as_bytes())
    }

    // proves S3
    #[test]
    fn dates_and_times_are_found_in_names() {
        let at = |pattern, name| match_pattern(pattern, name);
        let expected = time("2026-01-31T23:59:00Z");
        assert!(expected.is_some());
        assert_eq!(
            at("{date}/{time}/a.jsonl", "2026-01-31/23-59/a.jsonl"),
            expected
        );
        assert_eq!(
            at("{date}/{time}/a.jsonl", "2026/01/31/23/59/a.jsonl"),
            expected
        );
        assert_eq!(
            at("x_{date}T{time}.json", "x_2026-01-31T23-59.json"),
            expected
        );
        assert_eq!(at("{date}/{time}", "2026-01-31/23-59/any.ndjson"), expected);
        let midnight = time("2026-01-31T00:00:00Z");
        assert_eq!(at("{date}.jsonl", "2026-01-31.jsonl"), midnight);
        for name in [
            "2026-01-31/24-00/a.jsonl",
            "2026-02-30/10-00/a.jsonl",
            "2026-01/31/10-00/a.jsonl",
            "2026-01-31/10-00/b.jsonl",
            "2026-01-31/10-00/a.jsonl/c",
            "26-01-31/10-00/a.jsonl",
        ] {
            assert_eq!(at("{date}/{time}/a.jsonl", name), None, "{name}");
        }
    }

    fn input(paths: &[PathBuf]) -> Input {
        let text =
            format!("sql = \"SELECT 1\"\n[inputs.Ref]\nreference = true\npath = {paths:?}\n");
        let mut job = JobFile::parse(&text, "job.toml").unwrap();
        job.inputs.remove(0)
    }

    fn load_paths(paths: &[PathBuf]) -> Result<(ReferenceTable, InputReport), ReferenceError> {
        let always: EffectiveFrom<'_> = &|_, named| Some(named);
        load(&reference(), &input(paths), Level::default(), always, None)
    }

    fn reference() -> Reference {
        Reference {
            name: "Ref".into(),
            reads: vec![
                Read::Path(vec!["a".into()]),
                Read::FileName,
                Read::Whole,
                Read::Partition,
            ],
            schema: None,
            steps: Vec::new(),
            span: highwater_query::Span::default(),
        }
    }

    fn write(path: &Path, text: &str) {
        use std::io::Write;
        disk::create_folder(path.parent().unwrap()).unwrap();
        let mut file = disk::create_atomic(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.commit().unwrap();
    }

    // proves S3
    #[test]
    fn a_fixed_table_is_all_lines_of_all_files_and_bad_ones_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one.jsonl", "two.jsonl"].map(|name| folder.path().join(name));
        write(&one, "{\"a\":1}\n{\"a\":\n{\"a\":2}\n");
        write(&two, "{\"a\":\"x\"}\n");
        let (table, report) = load_paths(&[one, two.clone()]).unwrap();
        assert_eq!(report.errors.count(), 1);
        assert_eq!((report.time.read, report.events()), (3, 4));
        let [(from, chunk)] = &table.snapshots[..] else {
            panic!("one snapshot");
        };
        assert_eq!(*from, Instant::BEFORE_ALL);
        assert_eq!(chunk.rows(), 3);
        assert!(matches!(chunk.columns[0].get(1), ValueRef::Int(2)));
        assert!(matches!(chunk.columns[0].get(2), ValueRef::Text("x")));
        let name = two.display().to_string();
        assert!(matches!(chunk.columns[1].get(2), ValueRef::Text(found) if found == name));
        assert!(matches!(chunk.columns[2].get(0), ValueRef::Record(_)));
        assert!(chunk.columns[3].is_null(0));

        let missing = load_paths(&[folder.path().join("none.jsonl")]);
        assert!(matches!(missing, Err(ReferenceError::Read(_))));
    }

    // proves S3
    #[test]
    fn snapshots_are_found_by_their_pattern_and_come_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(&root.join("r/2026-01-02/00-30/t.jsonl"), "{\"a\":2}\n");
        write(&root.join("r/2026-01-01/12-00/t.jsonl"), "{\"a\":1}\n");
        write(&root.join("r/2026-01-01/12-00/u.jsonl"), "{\"a\":9}\n");
        let (table, _) = load_paths(&[root.join("r/{date}/{time}/t.jsonl")]).unwrap();
        let seen: Vec<_> = table
            .snapshots
            .iter()
            .map(|(from, chunk)| (from.to_string(), chunk.rows()))
            .collect();
        let expected = [
            "2026-01-01T12:00:00.0000000Z",
            "2026-01-02T00:30:00.0000000Z",
        ];
        assert_eq!(seen, expected.map(|time| (time.to_string(), 1)));

        let error = load_paths(&[root.join("r/{date}/{time}/none.jsonl")]).unwrap_err();
        assert!(
            matches!(error, ReferenceError::NoSnapshot { .. }),
            "{error}"
        );
        let error = load_paths(&[root.join("r/{time}/t.jsonl")]).unwrap_err();
        assert!(
            matches!(error, ReferenceError::TimeWithoutDate { .. }),
            "{error}"
        );
    }
}
