//! Which rows make up a file: a function of the rows and their times, and of nothing else.
//!
//! Rows of one folder and one stretch of event time go to one file, until it has enough of them. So a job that is cut
//! off anywhere and hands over its rows again makes the same files again. How rows were handed over, how far the
//! watermark was known and when checkpoints were taken must not matter; a file that the watermark lets go of early
//! therefore keeps its place here until the rows themselves have moved on.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::Chunk;
use highwater_time::{Duration, Instant, TICKS_PER_MINUTE};

use super::body::{Body, Encoder};
use super::template::Template;

/// What bounds the files that are open at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A file is complete with so many rows.
    pub rows_max: u64,
    /// A file holds rows of one such stretch of event time.
    pub every: Option<Duration>,
    /// A file is complete with so many bytes.
    pub file_bytes_max: usize,
    /// Of all open files together; beyond it the oldest are complete.
    pub open_bytes_max: usize,
    /// As many at most; beyond it the oldest are complete.
    pub open_max: usize,
}

/// A file all of whose rows are there.
#[derive(Debug)]
pub(super) struct Complete {
    pub folder: String,
    /// The number of its first row.
    pub first: u64,
    pub body: Arc<Body>,
    /// What it is made of, once that is done.
    pub bytes: Option<Bytes>,
}

impl Complete {
    fn new(folder: String, first: u64, body: Body) -> Complete {
        Complete {
            folder,
            first,
            body: Arc::new(body),
            bytes: None,
        }
    }
}

pub(super) struct Gather {
    template: Template,
    limits: Limits,
    encoder: Encoder,
    /// By the number of their first row: the oldest come first.
    open: BTreeMap<u64, Open>,
    by_folder: HashMap<String, u64, FixedState>,
    /// Of all that is open.
    bytes: usize,
    /// Where the stretch of time ends that all open files belong to.
    until: Instant,
    folder: Folder,
}

struct Open {
    folder: String,
    rows: u64,
    bytes: usize,
    /// `None` once the watermark has let go of the file.
    body: Option<Body>,
}

/// The folder of the row at hand.
#[derive(Default)]
struct Folder {
    name: String,
    /// Where the template depends on the time alone, the minute that it is of.
    minute: Option<i64>,
}

impl Gather {
    pub fn new(template: Template, limits: Limits, encoder: Encoder) -> Gather {
        Gather {
            template,
            limits,
            encoder,
            open: BTreeMap::new(),
            by_folder: HashMap::default(),
            bytes: 0,
            until: Instant::BEFORE_ALL,
            folder: Folder::default(),
        }
    }

    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Takes a row, and passes on files that are complete.
    pub fn push(&mut self, chunk: &Chunk, row: usize, number: u64, done: &mut Vec<Complete>) {
        let time = chunk.time(row);
        if time >= self.until {
            while let Some((&first, _)) = self.open.first_key_value() {
                self.close(first, done);
            }
            self.until = self.end_of_stretch(time);
        }
        self.find_folder(chunk, row);
        let first = self.file_for(number, done);
        let file = self.open.get_mut(&first);
        if let Some(Open {
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

    fn end_of_stretch(&self, time: Instant) -> Instant {
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

    /// The file that takes the row, begun with it if need be.
    fn file_for(&mut self, number: u64, done: &mut Vec<Complete>) -> u64 {
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
        let file = Open {
            folder,
            rows: 0,
            bytes: 0,
            body: Some(Body::default()),
        };
        self.open.insert(number, file);
        number
    }

    fn close(&mut self, first: u64, done: &mut Vec<Complete>) {
        let Some(file) = self.open.remove(&first) else {
            return;
        };
        self.bytes -= file.bytes;
        self.by_folder.remove(&file.folder);
        done.extend(
            file.body
                .map(|body| Complete::new(file.folder, first, body)),
        );
    }

    /// Lets go of files that can get no more rows.
    pub fn advance(&mut self, watermark: Instant, done: &mut Vec<Complete>) {
        if watermark < self.until {
            return;
        }
        for (&first, file) in &mut self.open {
            let body = file.body.take();
            done.extend(body.map(|body| Complete::new(file.folder.clone(), first, body)));
        }
    }

    pub fn save(&self, out: &mut Vec<u8>) {
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

    pub fn restore(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.until = Instant::from_ticks(input.i64()?);
        for _ in 0..input.count()? {
            let first = input.u64()?;
            let folder = input.text()?;
            let (rows, bytes) = (input.u64()?, input.u64()? as usize);
            let body = match input.u8()? {
                0 => None,
                _ => Some(Body::restore(input)?),
            };
            self.bytes = self
                .bytes
                .checked_add(bytes)
                .ok_or(DecodeError::Invalid("a file is larger than can be"))?;
            self.by_folder.insert(folder.into(), first);
            let folder = folder.into();
            let file = Open {
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
