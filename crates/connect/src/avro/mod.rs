//! Reads Avro object container files.
//!
//! Our own code, because so little of Avro is needed: the schema of the file is the only schema. A file is a
//! sequence of blocks separated by sync markers; an error inside a block loses the rest of that block, and reading
//! continues after the next marker.

mod schema;
mod value;

use std::io::{self, BufReader, Read};

use highwater_engine::{Column, ColumnBuilder};

use crate::bytes::{FileBytes, OpenFile};
use crate::lines::ReadError;
use crate::source::{BadKind, Events, Source, SourceOptions};
use crate::table::{BadRow, Table};
use schema::Schemas;
use value::{BadValue, ValueReader};

const MAGIC: &[u8; 4] = b"Obj\x01";
const MARKER_BYTES: usize = 16;
/// A larger block, compressed or not, is refused.
const BLOCK_BYTES_MAX: u64 = 256 << 20;
/// Small blocks are returned together.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 4 << 20;

pub(crate) struct AvroSource {
    file: OpenFile,
    bytes: BufReader<Box<dyn Read + Send>>,
    options: SourceOptions,
    header: Option<Header>,
    /// Events read so far.
    rows: u64,
    ended: bool,
    /// Returned once the events before it have been returned.
    failed: Option<ReadError>,
}

struct Header {
    schemas: Schemas,
    root: usize,
    table: Table,
    codec: Codec,
    marker: [u8; MARKER_BYTES],
}

#[derive(Clone, Copy)]
enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

struct Block {
    events: u64,
    bytes: Vec<u8>,
}

impl AvroSource {
    pub(crate) fn new(bytes: FileBytes, options: SourceOptions) -> AvroSource {
        AvroSource {
            file: bytes.file,
            bytes: BufReader::with_capacity(256 << 10, bytes.bytes),
            options,
            header: None,
            rows: 0,
            ended: false,
            failed: None,
        }
    }

    fn read_header(&mut self) -> Result<Header, ReadError> {
        let mut magic = [0; 4];
        let read = self.bytes.read_exact(&mut magic);
        if read.is_err() || &magic != MAGIC {
            return Err(self.file.format_error(
                "it does not start with the header of an Avro object container file",
            ));
        }
        let mut schema = None;
        let mut codec = Codec::Null;
        loop {
            let count = self.long()?;
            if count == 0 {
                break;
            }
            if count < 0 {
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                let key = self.sized()?;
                let value = self.sized()?;
                match &key[..] {
                    b"avro.schema" => schema = Some(value),
                    b"avro.codec" => codec = self.codec(&value)?,
                    _ => {}
                }
            }
        }
        let Some(schema) = schema else {
            return Err(self.file.format_error("its header has no schema"));
        };
        let (schemas, root) =
            Schemas::parse(&schema).map_err(|reason| self.file.format_error(reason))?;
        let fields = schemas.records[root].iter();
        let names = fields.map(|(name, _)| name.to_string()).collect();
        let marker = self.exactly(MARKER_BYTES as u64)?;
        Ok(Header {
            table: Table::new(names, false, &self.options),
            schemas,
            root,
            codec,
            marker: *marker.first_chunk().expect("that many bytes were read"),
        })
    }

    fn codec(&self, name: &[u8]) -> Result<Codec, ReadError> {
        Ok(match name {
            b"null" => Codec::Null,
            b"deflate" => Codec::Deflate,
            b"snappy" => Codec::Snappy,
            b"zstandard" => Codec::Zstandard,
            other => {
                let name = String::from_utf8_lossy(other);
                return Err(self.file.format_error(format!(
                    "its blocks are compressed with {name}; null, deflate, snappy and zstandard can be read"
                )));
            }
        })
    }

    /// The next block, or `None` at the end of the file.
    fn next_block(&mut self, header: &Header) -> Result<Option<Block>, ReadError> {
        let mut first = [0; 1];
        loop {
            match self.bytes.read(&mut first) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.file.read_error(error)),
            }
        }
        let events = self.long_from(first[0])?;
        let size = self.long()?;
        let (Ok(events), Ok(size)) = (u64::try_from(events), u64::try_from(size)) else {
            return Err(self.file.format_error("a block has a negative size"));
        };
        let bytes = self.exactly(size)?;
        let marker = self.exactly(MARKER_BYTES as u64)?;
        if marker != header.marker {
            return Err(self
                .file
                .format_error("a block does not end with the marker of the file; it is damaged"));
        }
        let bytes = decompress(header.codec, bytes).map_err(|error| {
            self.file
                .format_error(format!("a block cannot be decompressed: {error}"))
        })?;
        Ok(Some(Block { events, bytes }))
    }

    /// Decodes blocks until there is enough for a batch.
    fn decode(&mut self, header: &Header) -> Events {
        let first = self.rows;
        let mut columns: Vec<ColumnBuilder> = Vec::new();
        columns.resize_with(header.table.names().len(), ColumnBuilder::default);
        let mut bad = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while rows < BATCH_ROWS && bytes < BATCH_BYTES && !self.ended {
            match self.next_block(header) {
                Ok(Some(block)) => {
                    bytes += block.bytes.len();
                    decode_block(header, &block, &mut columns, &mut rows, &mut bad);
                    self.rows = first + rows as u64;
                }
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    self.failed = Some(error);
                }
            }
        }
        let columns: Vec<Column> = columns.into_iter().map(ColumnBuilder::finish).collect();
        let line = |row: usize| first + row as u64 + 1;
        header.table.events(columns, rows, bad, line)
    }

    fn long(&mut self) -> Result<i64, ReadError> {
        let first = self.exactly(1)?[0];
        self.long_from(first)
    }

    /// A number whose first byte has been read.
    fn long_from(&mut self, first: u8) -> Result<i64, ReadError> {
        let mut bytes = vec![first];
        while bytes.last().is_some_and(|byte| *byte >= 0x80) && bytes.len() < 10 {
            bytes.push(self.exactly(1)?[0]);
        }
        let schemas = Schemas::default();
        ValueReader::new(&schemas, &bytes)
            .long()
            .map_err(|error| self.file.format_error(&error.reason))
    }

    fn sized(&mut self) -> Result<Vec<u8>, ReadError> {
        match u64::try_from(self.long()?) {
            Ok(length) => self.exactly(length),
            Err(_) => Err(self.file.format_error("its header is damaged")),
        }
    }

    fn exactly(&mut self, count: u64) -> Result<Vec<u8>, ReadError> {
        if count > BLOCK_BYTES_MAX {
            return Err(self.file.format_error(format!(
                "a block has {count} bytes; the limit is {BLOCK_BYTES_MAX}"
            )));
        }
        let mut bytes = Vec::new();
        let read = (&mut self.bytes).take(count).read_to_end(&mut bytes);
        match read {
            Ok(_) if bytes.len() as u64 == count => Ok(bytes),
            Ok(_) => Err(self.file.read_error(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file ends inside a block; it was cut short",
            ))),
            Err(error) => Err(self.file.read_error(error)),
        }
    }
}

fn decode_block(
    header: &Header,
    block: &Block,
    columns: &mut [ColumnBuilder],
    rows: &mut usize,
    bad: &mut Vec<BadRow>,
) {
    let mut values = ValueReader::new(&header.schemas, &block.bytes);
    let mut fields = Vec::new();
    for event in 0..block.events {
        // An event without any bytes cannot be distinguished from a damaged count.
        let read = match values.is_empty() && !columns.is_empty() {
            true => Err(BadValue {
                reason: "the block ends before its last event".into(),
            }),
            false => values.event(header.root, &mut fields),
        };
        match read {
            Ok(misfit) => {
                bad.extend(misfit.map(|reason| BadRow {
                    row: *rows,
                    kind: BadKind::InvalidData,
                    reason,
                }));
                for (column, value) in columns.iter_mut().zip(fields.drain(..)) {
                    column.push_owned(value);
                }
                *rows += 1;
            }
            Err(error) => {
                let lost = block.events - event - 1;
                let rest = match lost {
                    0 => String::new(),
                    lost => format!("; {lost} later events in the same block are lost too"),
                };
                columns.iter_mut().for_each(ColumnBuilder::push_null);
                bad.push(BadRow {
                    row: *rows,
                    kind: BadKind::InvalidData,
                    reason: format!("{}{rest}", error.reason),
                });
                *rows += 1;
                return;
            }
        }
    }
}

fn decompress(codec: Codec, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    match codec {
        Codec::Null => return Ok(bytes),
        Codec::Deflate => {
            let inflated = flate2::read::DeflateDecoder::new(&bytes[..]);
            inflated.take(BLOCK_BYTES_MAX).read_to_end(&mut out)?;
        }
        Codec::Zstandard => {
            let inflated = zstd::stream::read::Decoder::new(&bytes[..])?;
            inflated.take(BLOCK_BYTES_MAX).read_to_end(&mut out)?;
        }
        Codec::Snappy => {
            let Some((packed, checksum)) = bytes.split_last_chunk::<4>() else {
                return Err(damaged("it is too short"));
            };
            let length = snap::raw::decompress_len(packed)?;
            if length as u64 > BLOCK_BYTES_MAX {
                return Err(damaged("it is too long"));
            }
            out = snap::raw::Decoder::new().decompress_vec(packed)?;
            if crc32fast::hash(&out) != u32::from_be_bytes(*checksum) {
                return Err(damaged("its checksum does not match"));
            }
        }
    }
    Ok(out)
}

impl Source for AvroSource {
    fn next_batch(&mut self) -> Result<Option<Events>, ReadError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.ended {
            return Ok(None);
        }
        let header = match self.header.take() {
            Some(header) => header,
            None => match self.read_header() {
                Ok(header) => header,
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            },
        };
        let events = self.decode(&header);
        self.header = Some(header);
        Ok(Some(events))
    }

    fn file(&self) -> &OpenFile {
        &self.file
    }
}
