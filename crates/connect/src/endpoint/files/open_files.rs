//! Assigns rows to files, as a function of the rows and their times alone.
//!
//! Rows of one folder and one span of event time go to one file, until it is full. So a job that crashes anywhere and
//! writes its rows again makes the same files again. The grouping of rows into writes, the watermark and the times of
//! checkpoints must not matter; a file that the watermark completes early therefore stays registered here until the
//! rows themselves have moved on.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::Chunk;
use highwater_time::{Duration, Instant, TICKS_PER_MINUTE};

use super::body::{Encoder, FileBody};
use super::template::Template;

/// Limits on the open files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A file is complete with this many rows.
    pub rows_max: u64,
    /// The span of event time of one file.
    pub every: Option<Duration>,
    /// A file is complete with this many bytes.
    pub file_bytes_max: usize,
    /// Of all open files together; beyond it the oldest are completed.
    pub open_bytes_max: usize,
    /// How many files may be open; beyond it the oldest are completed.
    pub open_max: usize,
}

/// A file with all of its rows.
#[derive(Debug)]
pub(super) struct CompleteFile {
    pub folder: String,
    /// The number of its first row.
    pub first: u64,
    pub body: Arc<FileBody>,
    /// The encoded file, once it is made.
    pub bytes: Option<Bytes>,
}

impl CompleteFile {
    fn new(folder: String, first: u64, body: FileBody) -> CompleteFile {
        CompleteFile {
            folder,
            first,
            body: Arc::new(body),
            bytes: None,
        }
    }
}

pub(super) struct OpenFiles {
    template: Template,
    limits: Limits,
    encoder: Encoder,
    /// By the number of their first row: the oldest come first.
    open: BTreeMap<u64, OpenFile>,
    by_folder: HashMap<String, u64, FixedState>,
    /// The size of all open files.
    bytes: usize,
    /// The end of the time span of all open files.
    until: Instant,
    folder: CurrentFolder,
}

struct OpenFile {
    folder: String,
    rows: u64,
    bytes: usize,
    /// `None` once the watermark has completed the file.
    body: Option<FileBody>,
}

/// The folder of the current row.
#[derive(Default)]
struct CurrentFolder {
    name: String,
    /// If the template depends on the time alone: the minute for which it was rendered.
    minute: Option<i64>,
}

impl OpenFiles {
    pub(super) fn new(template: Template, limits: Limits, encoder: Encoder) -> OpenFiles {
        OpenFiles {
            template,
            limits,
            encoder,
            open: BTreeMap::new(),
            by_folder: HashMap::default(),
            bytes: 0,
            until: Instant::BEFORE_ALL,
            folder: CurrentFolder::default(),
        }
    }

    pub(super) fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Adds a row, and returns the files that become complete.
    pub(super) fn push(
        &mut self,
        chunk: &Chunk,
        row: usize,
        number: u64,
        done: &mut Vec<CompleteFile>,
    ) {
        let time = chunk.time(row);
        if time >= self.until {
            while let Some((&first, _)) = self.open.first_key_value() {
                self.close(first, done);
            }
            self.until = self.end_of_span(time);
        }
        self.find_folder(chunk, row);
        let first = self.file_for(number, done);
        let file = self.open.get_mut(&first);
        if let Some(OpenFile {
            rows,
            bytes,
            body: Some(body),
            ..
        }) = file
        {
            self.encoder.push(chunk, row, body);
            *rows += 1;
            self.bytes += body.len() - *bytes;
            *bytes = body.len();
            if *rows >= self.limits.rows_max || *bytes >= self.limits.file_bytes_max {
                self.close(first, done);
            }
        }
        while self.bytes > self.limits.open_bytes_max
            && let Some((&oldest, _)) = self.open.first_key_value()
        {
            self.close(oldest, done);
        }
    }

    fn end_of_span(&self, time: Instant) -> Instant {
        match self.limits.every {
            Some(every) => {
                let into = time.ticks().rem_euclid(every.ticks());
                Instant::from_ticks(time.ticks().saturating_add(every.ticks() - into))
            }
            None => Instant::AFTER_ALL,
        }
    }

    fn find_folder(&mut self, chunk: &Chunk, row: usize) {
        let minute = chunk.times[row].div_euclid(TICKS_PER_MINUTE);
        if self.folder.minute == Some(minute) {
            return;
        }
        self.folder.name.clear();
        self.template
            .render(self.encoder.names(), chunk, row, &mut self.folder.name);
        self.folder.minute = self.template.is_of_time_alone().then_some(minute);
    }

    /// The file for the row, created if necessary.
    fn file_for(&mut self, number: u64, done: &mut Vec<CompleteFile>) -> u64 {
        if let Some(&first) = self.by_folder.get(&self.folder.name) {
            match self
                .open
                .get(&first)
                .is_some_and(|file| file.body.is_some())
            {
                true => return first,
                false => self.close(first, done),
            }
        }
        while self.open.len() >= self.limits.open_max
            && let Some((&oldest, _)) = self.open.first_key_value()
        {
            self.close(oldest, done);
        }
        let folder = self.folder.name.clone();
        self.by_folder.insert(folder.clone(), number);
        let file = OpenFile {
            folder,
            rows: 0,
            bytes: 0,
            body: Some(FileBody::default()),
        };
        self.open.insert(number, file);
        number
    }

    fn close(&mut self, first: u64, done: &mut Vec<CompleteFile>) {
        let Some(file) = self.open.remove(&first) else {
            return;
        };
        self.bytes -= file.bytes;
        self.by_folder.remove(&file.folder);
        done.extend(
            file.body
                .map(|body| CompleteFile::new(file.folder, first, body)),
        );
    }

    /// Completes files that will receive no more rows.
    pub(super) fn advance(&mut self, watermark: Instant, done: &mut Vec<CompleteFile>) {
        if watermark < self.until {
            return;
        }
        for (&first, file) in &mut self.open {
            let body = file.body.take();
            done.extend(body.map(|body| CompleteFile::new(file.folder.clone(), first, body)));
        }
    }

    pub(super) fn save(&self, out: &mut Vec<u8>) {
        out.i64(self.until.ticks());
        out.count(self.open.len());
        for (first, file) in &self.open {
            out.u64(*first);
            out.blob(file.folder.as_bytes());
            out.u64(file.rows);
            out.u64(file.bytes as u64);
            out.u8(file.body.is_some().into());
            if let Some(body) = &file.body {
                body.save(out);
            }
        }
    }

    pub(super) fn restore(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.until = Instant::from_ticks(input.i64()?);
        for _ in 0..input.count()? {
            let first = input.u64()?;
            let folder = input.text()?;
            let (rows, bytes) = (input.u64()?, input.u64()? as usize);
            let body = match input.u8()? {
                0 => None,
                _ => Some(FileBody::restore(input)?),
            };
            self.bytes = self
                .bytes
                .checked_add(bytes)
                .ok_or(DecodeError::Invalid("a file is larger than can be"))?;
            self.by_folder.insert(folder.into(), first);
            let folder = folder.into();
            let file = OpenFile {
                folder,
                rows,
                bytes,
                body,
            };
            self.open.insert(first, file);
        }
        Ok(())
    }
}
