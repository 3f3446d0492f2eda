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
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};

use super::leaf::{Leaf, malformed};
use super::record::rows_of;
use super::schema::{RootColumn, leaf_count};
use crate::bytes::{FileBytes, OpenFile, by_name};
use crate::lines::ReadError;
use crate::source::{BadKind, Compression, Events, Source, SourceOptions};
use crate::table::{BadRow, Table};

pub(crate) struct ParquetSource {
    bytes: RandomAccessFile,
    options: SourceOptions,
    reader: Option<RowReader>,
    ended: bool,
}

/// Reads the columns that a query needs, one row group after the other.
struct RowReader {
    file: SerializedFileReader<RandomAccessFile>,
    table: Table,
    columns: Vec<NeededColumn>,
    next_group: usize,
    /// The rows of the current group that are still to be read.
    rows_left: usize,
    /// The rows of the file that were read.
    rows: u64,
}

struct NeededColumn {
    /// Its position in the table.
    index: usize,
    root: RootColumn,
    /// Of the current row group.
    leaves: Vec<Leaf>,
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
            ended: false,
        })
    }

    fn start(&self) -> Result<RowReader, ReadError> {
        let file = SerializedFileReader::new(self.bytes.clone());
        let file = file.map_err(|error| self.wrong(&error))?;
        let schema = file.metadata().file_metadata().schema_descr().root_schema();
        let fields = schema.get_fields();
        let names = fields.iter().map(|field| field.name().to_owned()).collect();
        let table = Table::new(names, false, &self.options);
        let mut columns = Vec::new();
        let mut first_leaf = 0;
        for (index, field) in fields.iter().enumerate() {
            if table.needs(index) {
                let root = RootColumn::of(field, first_leaf);
                columns.push(NeededColumn {
                    index,
                    root: root.map_err(|reason| self.bytes.file.format_error(reason))?,
                    leaves: Vec::new(),
                });
            }
            first_leaf += leaf_count(field);
        }
        Ok(RowReader {
            file,
            table,
            columns,
            next_group: 0,
            rows_left: 0,
            rows: 0,
        })
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
        let mut reader = started?;
        let events = match guarded(|| reader.next()) {
            Ok(Ok(Some(events))) => events,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(error)) => return Err(self.wrong(&error)),
            Err(given_up) => return Err(self.wrong(&given_up)),
        };
        self.reader = Some(reader);
        self.ended = false;
        Ok(Some(events))
    }

    fn file(&self) -> &OpenFile {
        &self.bytes.file
    }
}

impl RowReader {
    fn next(&mut self) -> Result<Option<Events>, ParquetError> {
        while self.rows_left == 0 {
            if self.next_group == self.file.num_row_groups() {
                return Ok(None);
            }
            self.open_group()?;
        }
        let rows = self.rows_left.min(CHUNK_ROWS);
        self.rows_left -= rows;
        let mut columns = vec![Column::Null(rows); self.table.names().len()];
        let mut bad = Vec::new();
        for column in &mut self.columns {
            for leaf in &mut column.leaves {
                leaf.read(rows)?;
            }
            let name = &self.table.names()[column.index];
            let found = rows_of(
                &column.root.node,
                &mut column.leaves,
                rows,
                |row, reason| {
                    bad.push(BadRow {
                        row,
                        kind: BadKind::InvalidData,
                        reason: format!("{name}: {reason}"),
                    });
                },
            );
            columns[column.index] = found?;
        }
        let first = self.rows;
        self.rows += rows as u64;
        let line = |row| first + row as u64 + 1;
        Ok(Some(self.table.events(columns, rows, bad, line)))
    }

    fn open_group(&mut self) -> Result<(), ParquetError> {
        let group = self.file.get_row_group(self.next_group)?;
        self.next_group += 1;
        self.rows_left = usize::try_from(group.metadata().num_rows())
            .map_err(|_| malformed("a row group has a negative number of rows"))?;
        for column in &mut self.columns {
            column.leaves.clear();
            for (index, leaf_type) in column.root.leaf_types.iter().enumerate() {
                let index = column.root.first_leaf + index;
                let descriptor = group.metadata().column(index).column_descr();
                let reader = group.get_column_reader(index)?;
                column
                    .leaves
                    .push(Leaf::new(reader, descriptor, *leaf_type));
            }
        }
        Ok(())
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
