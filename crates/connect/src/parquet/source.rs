//! A Parquet file as a source of events.
//!
//! Only the columns that a query reads are decoded, a few thousand rows at a time. The file needs random access, so a
//! compressed one is decompressed into memory first.
//!
//! The library asserts invariants of valid files, and a damaged file must not end a job: its panics are errors like its
//! others ([`guarded`]).

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use highwater_engine::{CHUNK_ROWS, Column};
use highwater_env::disk;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::column::decode_column;
use crate::bytes::{FileBytes, OpenFile, by_name};
use crate::lines::ReadError;
use crate::source::{Compression, Events, Source, SourceOptions};
use crate::table::Table;

pub(crate) struct ParquetSource {
    bytes: RandomAccessFile,
    options: SourceOptions,
    reader: Option<(ParquetRecordBatchReader, Table, Vec<usize>)>,
    rows: u64,
    ended: bool,
}

/// A file with random access.
#[derive(Clone)]
struct RandomAccessFile {
    file: OpenFile,
    contents: Arc<Contents>,
    len: u64,
}

enum Contents {
    Disk(disk::Reader),
    Memory(Bytes),
}

impl ParquetSource {
    pub(crate) fn open(path: &Path, options: SourceOptions) -> Result<ParquetSource, ReadError> {
        let compressed = by_name(options.compression, path) != Compression::None;
        let (contents, len, modified) = if compressed {
            let mut opened = FileBytes::open(path, options.compression)?;
            let mut bytes = Vec::new();
            let read = opened.bytes.read_to_end(&mut bytes);
            read.map_err(|source| opened.file.read_error(source))?;
            let len = bytes.len() as u64;
            (Contents::Memory(bytes.into()), len, opened.file.modified)
        } else {
            let opened = disk::open(path).map_err(|source| ReadError::Open {
                file: path.to_path_buf(),
                source,
            })?;
            let (len, modified) = (opened.len(), opened.modified());
            (Contents::Disk(opened), len, modified)
        };
        Ok(ParquetSource {
            bytes: RandomAccessFile {
                file: OpenFile::new(path, modified),
                contents: Arc::new(contents),
                len,
            },
            options,
            reader: None,
            rows: 0,
            ended: false,
        })
    }

    fn start(&self) -> Result<(ParquetRecordBatchReader, Table, Vec<usize>), ReadError> {
        // The types of the file itself, not those that its writer had in memory.
        let how = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder =
            ParquetRecordBatchReaderBuilder::try_new_with_options(self.bytes.clone(), how)
                .map_err(|error| self.wrong(&error))?;
        let fields = builder.schema().fields();
        let names = fields.iter().map(|field| field.name().clone()).collect();
        let table = Table::new(names, false, &self.options);
        let needed: Vec<usize> = (0..fields.len()).filter(|i| table.needs(*i)).collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), needed.iter().copied());
        let reader = builder
            .with_projection(mask)
            .with_batch_size(CHUNK_ROWS)
            .build()
            .map_err(|error| self.wrong(&error))?;
        Ok((reader, table, needed))
    }

    fn wrong(&self, error: &dyn std::fmt::Display) -> ReadError {
        let file = &self.bytes.file;
        file.format_error(format!("it is not a valid Parquet file: {error}"))
    }
}

/// The result of the library, unless it panics.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, &'static str> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "its metadata is inconsistent")
}

impl Source for ParquetSource {
    fn next_batch(&mut self) -> Result<Option<Events>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        // Until there is a batch: an error ends the file.
        self.ended = true;
        let started = match self.reader.take() {
            Some(reader) => Ok(reader),
            None => guarded(|| self.start()).unwrap_or_else(|given_up| Err(self.wrong(&given_up))),
        };
        let (mut reader, table, needed) = started?;
        let batch = match guarded(|| reader.next()) {
            Ok(Some(Ok(batch))) => batch,
            Ok(Some(Err(error))) => return Err(self.wrong(&error)),
            Ok(None) => return Ok(None),
            Err(given_up) => return Err(self.wrong(&given_up)),
        };
        let rows = batch.num_rows();
        let mut columns = vec![Column::Null(rows); table.names().len()];
        let mut bad = Vec::new();
        for (array, column) in batch.columns().iter().zip(&needed) {
            let name = &table.names()[*column];
            match decode_column(array, name, &mut bad) {
                Ok(decoded) => columns[*column] = decoded,
                Err(reason) => return Err(self.bytes.file.format_error(reason)),
            }
        }
        let first = self.rows;
        let events = table.events(columns, rows, bad, |row| first + row as u64 + 1);
        self.rows += rows as u64;
        self.reader = Some((reader, table, needed));
        self.ended = false;
        Ok(Some(events))
    }

    fn file(&self) -> &OpenFile {
        &self.bytes.file
    }
}

impl Length for RandomAccessFile {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for RandomAccessFile {
    type T = PositionedReader;

    fn get_read(&self, start: u64) -> Result<PositionedReader, ParquetError> {
        Ok(PositionedReader {
            file: self.clone(),
            at: start,
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF("the file ends too early".into()));
        }
        self.file.add_read(length as u64);
        match &*self.contents {
            Contents::Memory(bytes) => Ok(bytes.slice(start as usize..start as usize + length)),
            Contents::Disk(file) => {
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, start)?;
                Ok(buffer.into())
            }
        }
    }
}

/// Reads on from one position.
pub(crate) struct PositionedReader {
    file: RandomAccessFile,
    at: u64,
}

impl Read for PositionedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.file.len.saturating_sub(self.at);
        let count = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let bytes = self.file.get_bytes(self.at, count);
        let bytes = bytes.map_err(io::Error::other)?;
        buffer[..count].copy_from_slice(&bytes);
        self.at += count as u64;
        Ok(count)
    }
}
