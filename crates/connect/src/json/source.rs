//! A JSON file as a source of events.

use super::objects::{Objects, is_lines};
use super::{Batch, Decoder};
use crate::bytes::{FileBytes, OpenFile};
use crate::lines::{LineOptions, LineReader, ReadError};
use crate::source::{BadEvent, Events, Source, SourceOptions, extension};

/// How many bytes may be read to detect the layout.
pub(crate) const PEEK_BYTES: usize = 64 << 10;

pub(crate) struct JsonSource {
    file: OpenFile,
    blocks: Blocks,
    decoder: Decoder,
    batch: Batch,
}

enum Blocks {
    /// Nothing has been read yet, so the layout is unknown.
    Unread(Option<FileBytes>, bool),
    Lines(LineReader),
    Objects(Objects),
}

impl JsonSource {
    pub(crate) fn new(bytes: FileBytes, lines: bool, options: SourceOptions) -> JsonSource {
        let mut batch = Batch::tracking_lines(options.fields.len());
        batch.sample_bytes = options.text_bytes_max();
        let declared = options.declared.unwrap_or_default();
        JsonSource {
            file: bytes.file.clone(),
            blocks: Blocks::Unread(Some(bytes), lines),
            decoder: Decoder::with_rules(options.fields, options.level, &declared),
            batch,
        }
    }

    fn start(&mut self) {
        let Blocks::Unread(bytes, lines) = &mut self.blocks else {
            return;
        };
        let Some(mut bytes) = bytes.take() else {
            return;
        };
        let options = LineOptions::default();
        let named_lines = matches!(&extension(&self.file.path)[..], "jsonl" | "ndjson");
        let in_lines = *lines || {
            let first = bytes.peek(PEEK_BYTES);
            is_lines(&first) || (named_lines && !starts_array(&first))
        };
        self.blocks = match in_lines {
            true => Blocks::Lines(LineReader::new(bytes.file.path, bytes.bytes, options)),
            false => Blocks::Objects(Objects::new(
                bytes.bytes,
                options.block_bytes,
                options.line_bytes_max,
            )),
        };
    }
}

fn starts_array(first: &[u8]) -> bool {
    let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
    first.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[')
}

impl Source for JsonSource {
    fn next_batch(&mut self) -> Result<Option<Events>, ReadError> {
        self.start();
        match &mut self.blocks {
            Blocks::Unread(..) => Ok(None),
            Blocks::Lines(lines) => {
                let Some(block) = lines.next_block()? else {
                    return Ok(None);
                };
                let too_long = block.bad.map(BadEvent::from);
                let count = self
                    .decoder
                    .decode(block.bytes, block.first_line, &mut self.batch);
                lines.count_lines(count);
                let mut events = Events::from(self.batch.finish());
                events.bad.splice(0..0, too_long);
                Ok(Some(events))
            }
            Blocks::Objects(objects) => {
                let block = objects.next_block();
                let Some(block) = block.map_err(|source| self.file.read_error(source))? else {
                    return Ok(None);
                };
                self.decoder.decode(block.bytes, 1, &mut self.batch);
                let mut decoded = self.batch.finish();
                let start = |line: u64| block.starts[line as usize - 1];
                for line in &mut decoded.lines {
                    *line = start(*line);
                }
                for bad in &mut decoded.bad {
                    bad.line = start(bad.line);
                }
                Ok(Some(decoded.into()))
            }
        }
    }

    fn file(&self) -> &OpenFile {
        &self.file
    }
}
