//! The rows of a job that ends with its input: into a file that appears when it is complete, or to standard output.
//!
//! It does no asynchronous I/O, so every future is ready at once and needs no runtime. Time ends after the last row
//! ([`Endpoint::advance`] to [`Instant::AFTER_ALL`]): the format writes its footer. [`Endpoint::checkpoint`] then
//! commits, so that a job makes none of its files final before all of them have been written.

use std::future::ready;

use highwater_engine::{Chunk, Column};
use highwater_query::plan::Name;
use highwater_time::Instant;

use super::{Endpoint, EndpointError, EndpointFuture, Rows};
use crate::json::JsonWriter;
use crate::sink::{Sink, SinkError};
use crate::writer::{OutputFormat, RowWriter, WriteError, WriterOutput, row_writer};

/// Opens the sink of a part. Parts count from 1; only some formats have more than one.
pub type OpenSink = Box<dyn FnMut(usize) -> Result<Box<dyn Sink>, SinkError> + Send>;

pub struct SinkEndpoint {
    open: OpenSink,
    /// The part that is being written; `None` once committed.
    sink: Option<Box<dyn Sink>>,
    /// Parts that are complete.
    parts: Vec<Box<dyn Sink>>,
    encoding: Encoding,
    time_has_ended: bool,
}

enum Encoding {
    JsonLines {
        writer: JsonWriter,
        buffer: Vec<u8>,
    },
    /// The only column holds a line of text for each row.
    TextLines {
        buffer: Vec<u8>,
    },
    Other(Box<dyn RowWriter>),
}

impl SinkEndpoint {
    /// For rows whose columns show up under these names.
    pub fn new(
        open: OpenSink,
        format: OutputFormat,
        names: Vec<Name>,
    ) -> Result<SinkEndpoint, EndpointError> {
        let encoding = match format {
            OutputFormat::JsonLines => Encoding::JsonLines {
                writer: JsonWriter::new(names),
                buffer: Vec::new(),
            },
            other => Encoding::Other(row_writer(other, names)?),
        };
        SinkEndpoint::over(open, encoding)
    }

    /// For rows that are lines of text already.
    pub fn of_text_lines(open: OpenSink) -> Result<SinkEndpoint, EndpointError> {
        let buffer = Vec::new();
        SinkEndpoint::over(open, Encoding::TextLines { buffer })
    }

    fn over(mut open: OpenSink, encoding: Encoding) -> Result<SinkEndpoint, EndpointError> {
        Ok(SinkEndpoint {
            sink: Some(open(1)?),
            open,
            parts: Vec::new(),
            encoding,
            time_has_ended: false,
        })
    }

    fn take(&mut self, chunk: &Chunk) -> Result<(), EndpointError> {
        let Some(sink) = &mut self.sink else {
            return Err(EndpointError::unfit("rows came after the commit"));
        };
        match &mut self.encoding {
            Encoding::JsonLines { writer, buffer } => {
                buffer.clear();
                writer.write(chunk, buffer);
                Ok(sink.write(buffer)?)
            }
            Encoding::TextLines { buffer } => {
                buffer.clear();
                if let Some(Column::Text(lines)) = chunk.columns.first() {
                    for line in lines.iter().flatten() {
                        buffer.extend_from_slice(line.as_bytes());
                        buffer.push(b'\n');
                    }
                }
                Ok(sink.write(buffer)?)
            }
            Encoding::Other(writer) => {
                writer.write(chunk)?;
                self.flush_writer()
            }
        }
    }

    /// Passes the bytes that the writer has made to the sink.
    fn flush_writer(&mut self) -> Result<(), EndpointError> {
        let (Encoding::Other(writer), Some(sink)) = (&mut self.encoding, &mut self.sink) else {
            return Ok(());
        };
        while let Some(written) = writer.take() {
            match written {
                WriterOutput::Bytes(bytes) => sink.write(&bytes)?,
                WriterOutput::NewPart => {
                    let next = (self.open)(self.parts.len() + 2)?;
                    self.parts.push(std::mem::replace(sink, next));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), EndpointError> {
        if std::mem::replace(&mut self.time_has_ended, true) {
            return Ok(());
        }
        if let Encoding::Other(writer) = &mut self.encoding {
            writer.finish()?;
        }
        self.flush_writer()
    }

    fn commit(&mut self) -> Result<Vec<u8>, EndpointError> {
        for part in self.parts.drain(..).chain(self.sink.take()) {
            part.commit()?;
        }
        Ok(Vec::new())
    }
}

impl Endpoint for SinkEndpoint {
    fn resume<'a>(&'a mut self, _: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()> {
        Box::pin(ready(self.take(&rows.chunk)))
    }

    fn advance(&mut self, watermark: Instant) -> EndpointFuture<'_, ()> {
        let ended = match watermark {
            Instant::AFTER_ALL => self.end(),
            _ => Ok(()),
        };
        Box::pin(ready(ended))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        Box::pin(ready(self.commit()))
    }

    fn note(&self) -> Option<String> {
        match &self.encoding {
            Encoding::Other(writer) => writer.note(),
            Encoding::JsonLines { .. } | Encoding::TextLines { .. } => None,
        }
    }
}

impl From<SinkError> for EndpointError {
    fn from(error: SinkError) -> EndpointError {
        match error {
            SinkError::Closed => EndpointError::Closed,
            other => EndpointError::unfit(other),
        }
    }
}

impl From<WriteError> for EndpointError {
    fn from(error: WriteError) -> EndpointError {
        EndpointError::unfit(error)
    }
}
