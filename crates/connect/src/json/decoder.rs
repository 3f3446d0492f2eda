//! Decodes lines straight into columns.
//!
//! One pass over the bytes validates, finds the end of the line, and extracts the requested values. Keys are predicted
//! (see [`super::shape`]), so a line that resembles the previous one costs a comparison per key and a short scan per
//! value. The rows do not depend on predictions or on how lines are split into blocks.

use super::batch::Batch;
use super::build::Builder;
use super::fault::{BadJson, BadLine, Fault, FaultKind};
use super::nested;
use super::number;
use super::row::{Cell, Row};
use super::scan::{self, byte, skip_blanks, skip_value};
use super::shape::{END, KeyAction, START, Shape, Target};
use super::{DEPTH_MAX, Field};
use crate::declared::widen;
use crate::source::Level;
use highwater_engine::ColumnBuilder;
use highwater_query::plan::Type;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decodes JSON lines. Remembers their layout from one block to the next.
#[derive(Debug)]
pub struct Decoder {
    shape: Shape,
    row: Row,
    builder: Builder,
    takes: Vec<FieldSource>,
    declared: Vec<DeclaredColumn>,
}

/// A column of CREATE TABLE.
#[derive(Debug)]
struct DeclaredColumn {
    node: usize,
    name: std::sync::Arc<str>,
    kind: Type,
}

/// The node that a field's values come from.
#[derive(Clone, Copy, Debug)]
struct FieldSource {
    node: usize,
    as_time: bool,
}

impl Decoder {
    pub fn new(fields: Vec<Field>) -> Decoder {
        Decoder::with_rules(fields, Level::default(), &[])
    }

    /// For a compatibility level, and for events that must have these columns.
    pub(crate) fn with_rules(
        fields: Vec<Field>,
        level: Level,
        declared: &[(String, Type)],
    ) -> Decoder {
        let mut all = fields.clone();
        all.extend(
            declared
                .iter()
                .map(|(name, _)| Field::Path(vec![name.clone()])),
        );
        let (mut shape, nodes) = Shape::new(&all);
        // Built objects have their names compared and lower-cased.
        shape.nodes[0].wanted |= level == Level::V1_0;
        let take = |(field, node): (&Field, &usize)| FieldSource {
            node: *node,
            as_time: matches!(field, &Field::Time(_)),
        };
        Decoder {
            row: Row::new(
                shape.nodes.len(),
                nested::reader(level).filter(|_| declared.is_empty()),
            ),
            shape,
            builder: Builder::new(level),
            takes: fields.iter().zip(&nodes).map(take).collect(),
            declared: declared
                .iter()
                .zip(&nodes[fields.len()..])
                .map(|((name, kind), node)| DeclaredColumn {
                    node: *node,
                    name: name.as_str().into(),
                    kind: *kind,
                })
                .collect(),
        }
    }

    /// Builds records and arrays at once, to compare with.
    #[cfg(test)]
    pub(super) fn build_nested(&mut self) {
        self.row.reader = None;
    }

    /// Appends the fields of a record that is known to be valid, from `at` on; NULLs if there is no record.
    pub(super) fn read_object(&mut self, block: &str, at: usize, columns: &mut [ColumnBuilder]) {
        self.row.clear();
        if byte(block.as_bytes(), at) == b'{' && self.object(block, 0, at, 1).is_err() {
            self.row.clear();
        }
        for (take, column) in self.takes.iter().zip(columns) {
            self.row.push(take.node, block, column);
        }
    }

    /// Appends the events of a block of whole lines to the batch. The last line may lack its
    /// newline. `first_line` is the number of the block's first line, counted from 1. Returns the number of lines.
    pub fn decode(&mut self, block: &[u8], first_line: u64, batch: &mut Batch) -> u64 {
        debug_assert_eq!(
            batch.columns.len(),
            self.takes.len(),
            "the batch is for other fields"
        );
        self.shape.refresh();
        let block = match block.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if first_line == 1 => rest,
            _ => block,
        };
        match simdutf8::basic::from_utf8(block) {
            Ok(text) => self.lines(text, first_line, batch),
            Err(_) => self.lines_one_by_one(block, first_line, batch),
        }
    }

    /// Some line is not UTF-8; only that line is bad.
    #[cold]
    fn lines_one_by_one(&mut self, block: &[u8], first_line: u64, batch: &mut Batch) -> u64 {
        let mut lines = 0;
        for (line, number) in block.split_inclusive(|&b| b == b'\n').zip(first_line..) {
            match std::str::from_utf8(line) {
                Ok(text) => lines += self.lines(text, number, batch),
                Err(error) => {
                    lines += 1;
                    let shown = line.strip_suffix(b"\n").unwrap_or(line);
                    let at = error.valid_up_to();
                    let bytes = batch.sample_bytes;
                    batch
                        .bad
                        .push(BadLine::new(number, at, BadJson::NotUtf8, shown, bytes));
                }
            }
        }
        lines
    }

    fn lines(&mut self, block: &str, first_line: u64, batch: &mut Batch) -> u64 {
        let bytes = block.as_bytes();
        let (mut start, mut line) = (0, first_line);
        while start < bytes.len() {
            match self.line(block, start) {
                Ok(LineEnd::Event(end)) if !self.fits(block, start, end, line, batch) => {
                    start = end
                }
                Ok(LineEnd::Event(end)) => {
                    self.push_row(block, batch);
                    if let Some(lines) = &mut batch.lines {
                        lines.push(line);
                    }
                    start = end;
                }
                Ok(LineEnd::Blank(end)) => start = end,
                Err(fault) => start = bad_line(fault, bytes, start, line, batch),
            }
            line += 1;
        }
        line - first_line
    }

    /// Whether the row conforms to CREATE TABLE; widens values to the declared types. Reports a row that does not
    /// conform.
    #[inline(always)]
    fn fits(
        &mut self,
        block: &str,
        start: usize,
        end: usize,
        line: u64,
        batch: &mut Batch,
    ) -> bool {
        if self.declared.is_empty() {
            return true;
        }
        let Err(reason) = self.conform(block) else {
            return true;
        };
        let text = block[start..end.min(block.len())].trim_end_matches('\n');
        let bytes = batch.sample_bytes;
        batch
            .bad
            .push(BadLine::new(line, 0, reason, text.as_bytes(), bytes));
        false
    }

    #[inline(never)]
    fn conform(&mut self, block: &str) -> Result<(), BadJson> {
        for declared in &self.declared {
            let column = || declared.name.to_string();
            if !self.row.is_present(declared.node) {
                return Err(BadJson::MissingColumn { column: column() });
            }
            let found = self.row.look(declared.node, block);
            let wrong = |found: String| BadJson::WrongType {
                column: column(),
                declared: declared.kind.name(),
                found,
            };
            if let Some(value) = widen(found, declared.kind, self.builder.level).map_err(wrong)? {
                let cell = self.row.hold(value);
                *self.row.cell(declared.node) = cell;
            }
        }
        if self.shape.nodes[0].wanted {
            let value = |declared: &DeclaredColumn| self.row.look(declared.node, block).to_value();
            let fields = self.declared.iter().map(|d| (d.name.clone(), value(d)));
            let record = highwater_engine::Record::from_fields(fields.collect());
            let cell = self
                .row
                .hold(highwater_engine::Value::Record(record.into()));
            *self.row.cell(0) = cell;
        }
        Ok(())
    }

    #[inline(always)]
    fn push_row(&mut self, block: &str, batch: &mut Batch) {
        for (take, column) in self.takes.iter().zip(&mut batch.columns) {
            if take.as_time {
                self.row.push_time(take.node, block, column);
            } else {
                self.row.push(take.node, block, column);
            }
        }
        batch.rows += 1;
    }

    /// Reads one line into the row.
    #[inline(always)]
    fn line(&mut self, block: &str, start: usize) -> Result<LineEnd, Fault> {
        let bytes = block.as_bytes();
        let mut at = start;
        if byte(bytes, at) != b'{' {
            at = skip_blanks(bytes, at);
            match byte(bytes, at) {
                b'{' => {}
                b'\n' => return Ok(LineEnd::Blank(at + 1)),
                _ => return Err(Fault::new(at, FaultKind::NotAnObject)),
            }
        }
        self.row.clear();
        let mut end = match self.shape.nodes[0].wanted {
            true => self.nested_value(block, 0, at, 0)?,
            false => self.object(block, 0, at, 1)?,
        };
        if byte(bytes, end) != b'\n' {
            end = skip_blanks(bytes, end);
            if byte(bytes, end) != b'\n' {
                return Err(Fault::new(end, FaultKind::Trailing));
            }
        }
        Ok(LineEnd::Event(end + 1))
    }

    /// Reads the object at `at` for the paths below `node`; `open` counts it and the levels around it.
    fn object(&mut self, block: &str, node: usize, at: usize, open: u32) -> Result<usize, Fault> {
        let bytes = block.as_bytes();
        let (mut key, mut at) = (START, at);
        loop {
            let action;
            (key, action, at) = match self.run(block, node, key, at)? {
                RunEnd::Surprise(key, at) => self.surprise(block, node, key, at)?,
                RunEnd::Value(key, action, at) => (key, action, at),
                RunEnd::End(at) => return Ok(at),
            };
            at = match action {
                _ if key == END => return Ok(at),
                KeyAction::Skip => skip_value(bytes, at, open)?,
                KeyAction::Take(target) => self.take(block, node, key, target, at, open)?,
                KeyAction::TakeMany => self.take_many(block, node, key, at, open)?,
            };
        }
    }

    /// Runs over fields while keys come as predicted and values are plain texts or numbers.
    ///
    /// Nearly all the time is spent here. The loop touches little, so that its state stays in registers, and leaves
    /// everything unusual to the caller.
    #[inline(never)]
    fn run(&mut self, block: &str, node: usize, key: usize, at: usize) -> Result<RunEnd, Fault> {
        let bytes = block.as_bytes();
        let keys = &self.shape.nodes[node].keys[..];
        let (mut key, mut at) = (key, at);
        loop {
            let known = &keys[key];
            let Some(start) = known.predicted.after(bytes, at) else {
                return Ok(RunEnd::Surprise(key, at));
            };
            key = known.next;
            if key == END {
                return Ok(RunEnd::End(start));
            }
            let first = byte(bytes, start);
            let number_follows = matches!(first, b'-'..=b'9');
            match known.next_action {
                KeyAction::Skip if first == b'"' => at = scan::text(bytes, start + 1)?.end + 1,
                KeyAction::Skip if number_follows => at = number::skip(bytes, start)?,
                KeyAction::Take(target) if first == b'"' && self.row.is_first_exact(target) => {
                    let text = scan::text(bytes, start + 1)?;
                    self.row
                        .keep_text(target.node as usize, block, start + 1, text);
                    at = text.end + 1;
                }
                KeyAction::Take(target) if number_follows && self.row.is_first_exact(target) => {
                    let value;
                    (value, at) = number::number(bytes, start)?;
                    self.row.keep_number(target.node as usize, value);
                }
                action => return Ok(RunEnd::Value(key, action, start)),
            }
        }
    }

    /// Reads the text after the value of `key` by the slow path, and predicts it from now on.
    #[inline(never)]
    fn surprise(
        &mut self,
        block: &str,
        node: usize,
        key: usize,
        from: usize,
    ) -> Result<(usize, KeyAction, usize), Fault> {
        let bytes = block.as_bytes();
        let node = &mut self.shape.nodes[node];
        let mut at = skip_blanks(bytes, from);
        let mut missing = FaultKind::Key;
        if key == START {
            at = skip_blanks(bytes, at + 1);
            missing = FaultKind::FirstKey;
        }
        match byte(bytes, at) {
            b'}' => {
                node.learn(key, &bytes[from..at + 1], END);
                return Ok((END, KeyAction::Skip, at + 1));
            }
            b',' if key != START => at = skip_blanks(bytes, at + 1),
            _ if key != START => return Err(Fault::new(at, FaultKind::CommaOrBrace)),
            _ => {}
        }
        let found = scan::key(bytes, at, missing)?;
        let next = node.key(&block[found.start..found.end], found.escaped);
        node.learn(key, &bytes[from..found.value], next);
        Ok((next, node.action(next), found.value))
    }

    /// Reads the value of a key that matches one requested name.
    #[inline(always)]
    fn take(
        &mut self,
        block: &str,
        node: usize,
        key: usize,
        target: Target,
        at: usize,
        open: u32,
    ) -> Result<usize, Fault> {
        let child = target.node as usize;
        if !self.row.is_first_exact(target) {
            let name = &self.shape.nodes[node].keys[key].name;
            if !self.row.accept(target, name, self.shape.nodes[child].end) {
                return skip_value(block.as_bytes(), at, open);
            }
        }
        self.value(block, child, at, open)
    }

    #[inline(never)]
    fn take_many(
        &mut self,
        block: &str,
        node: usize,
        key: usize,
        at: usize,
        open: u32,
    ) -> Result<usize, Fault> {
        let targets = self.shape.nodes[node].keys[key].targets.clone();
        let mut end = at;
        for target in targets {
            end = self.take(block, node, key, target, at, open)?;
        }
        Ok(end)
    }

    #[inline(always)]
    fn value(&mut self, block: &str, node: usize, at: usize, open: u32) -> Result<usize, Fault> {
        let bytes = block.as_bytes();
        match byte(bytes, at) {
            b'"' => {
                let text = scan::text(bytes, at + 1)?;
                self.row.keep_text(node, block, at + 1, text);
                Ok(text.end + 1)
            }
            b'-'..=b'9' => {
                let (value, end) = number::number(bytes, at)?;
                self.row.keep_number(node, value);
                Ok(end)
            }
            _ => self.other_value(block, node, at, open),
        }
    }

    /// A value that is neither text nor number.
    #[inline(never)]
    fn other_value(
        &mut self,
        block: &str,
        node: usize,
        at: usize,
        open: u32,
    ) -> Result<usize, Fault> {
        let bytes = block.as_bytes();
        match byte(bytes, at) {
            b' ' | b'\t' | b'\r' => self.value_after_blanks(block, node, at, open),
            b'{' if open >= DEPTH_MAX => Err(Fault::new(at, FaultKind::TooDeep)),
            b'{' if !self.shape.nodes[node].wanted => self.object(block, node, at, open + 1),
            b'[' if !self.shape.nodes[node].wanted => skip_value(bytes, at, open),
            b'{' | b'[' => self.nested_value(block, node, at, open),
            _ => {
                let word = scan::word(bytes, at)?;
                if word != "null" {
                    *self.row.cell(node) = match self.builder.level {
                        Level::V1_2 => Cell::Bit(word == "true"),
                        _ => Cell::Int((word == "true").into()),
                    };
                }
                Ok(at + word.len())
            }
        }
    }

    #[inline(never)]
    fn value_after_blanks(
        &mut self,
        block: &str,
        node: usize,
        at: usize,
        open: u32,
    ) -> Result<usize, Fault> {
        self.value(block, node, skip_blanks(block.as_bytes(), at), open)
    }

    /// Takes the record or array at `at` for `node` and the nodes below.
    fn nested_value(
        &mut self,
        block: &str,
        node: usize,
        at: usize,
        open: u32,
    ) -> Result<usize, Fault> {
        if self.row.reader.is_none() {
            return self.build(block, node, at, open);
        }
        let bytes = block.as_bytes();
        let end = match byte(bytes, at) {
            b'{' => self.object(block, node, at, open + 1)?,
            _ => match self.array_of_objects(block, at, open) {
                Some(end) => end,
                None => skip_value(bytes, at, open)?,
            },
        };
        *self.row.cell(node) = Cell::Raw(at, end);
        Ok(end)
    }

    /// The end of the array at `at`, if it is a valid one of objects: those of one array have the same keys, so they are
    /// predicted. `None` for any other array, also for one with a fault.
    fn array_of_objects(&mut self, block: &str, at: usize, open: u32) -> Option<usize> {
        let bytes = block.as_bytes();
        if open + 1 >= DEPTH_MAX {
            return None;
        }
        let mut at = skip_blanks(bytes, at + 1);
        while byte(bytes, at) == b'{' {
            let end = self.object(block, self.shape.inside_arrays, at, open + 2);
            at = skip_blanks(bytes, end.ok()?);
            match byte(bytes, at) {
                b']' => return Some(at + 1),
                b',' => at = skip_blanks(bytes, at + 1),
                _ => return None,
            }
        }
        None
    }

    /// Builds the record or array at `at` for `node`, and fills the nodes below from it.
    #[inline(never)]
    fn build(&mut self, block: &str, node: usize, at: usize, open: u32) -> Result<usize, Fault> {
        let (value, end) = self.builder.value(block, at, open)?;
        if let highwater_engine::Value::Record(record) = &value {
            self.row.fill_from(&self.shape.nodes, node, record);
        }
        let cell = self.row.hold(value);
        *self.row.cell(node) = cell;
        Ok(end)
    }
}

/// Why a run over fields stopped.
enum RunEnd {
    /// Other text than predicted follows the value of the key.
    Surprise(usize, usize),
    /// The run cannot handle the value of the key.
    Value(usize, KeyAction, usize),
    /// The object has ended.
    End(usize),
}

/// The result of a line; both variants hold the start of the next line.
enum LineEnd {
    Event(usize),
    Blank(usize),
}

/// Reports a bad line and gives the start of the next one.
#[cold]
fn bad_line(fault: Fault, bytes: &[u8], start: usize, line: u64, batch: &mut Batch) -> usize {
    let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at);
    let report = fault.report(bytes, start, end, line, batch.sample_bytes);
    batch.bad.push(report);
    end + 1
}
