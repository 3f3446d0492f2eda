//! A JSON file as a source of events.

use super::objects::{Objects, is_lines};
use super::{Batch, Decoder};
use crate::bytes::{FileBytes, OpenFile};
use crate::lines::{LineOptions, LineReader, ReadError};
use crate::source::{Events, Source, SourceOptions, extension};

/// How many bytes may be read to detect the layout.
pub(crate) const PEEK_BYTES: usize = 64 << 10;

/// Lines of so many bytes become one batch.
const BATCH_BYTES: usize = 1 << 20;

pub(crate) struct JsonSource {
    file: OpenFile,
    blocks: Blocks,
    decoder: Decoder,
    batch: Batch,
    /// Returned once the events before it have been returned.
    failed: Option<ReadError>,
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
            failed: None,
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
                BATCH_BYTES,
                options.line_bytes_max,
            )),
        };
    }

    /// The events of the next lines. They are read and decoded in blocks that fit into the cache.
    fn next_lines(&mut self) -> Result<Option<Events>, ReadError> {
        let Blocks::Lines(lines) = &mut self.blocks else {
            return Ok(None);
        };
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            let block = match lines.next_block() {
                Ok(Some(block)) => block,
                Ok(None) if bytes == 0 => return Ok(None),
                Ok(None) => break,
                Err(error) if bytes == 0 => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            };
            self.batch.bad.extend(block.bad);
            let count = self
                .decoder
                .decode(block.bytes, block.first_line, &mut self.batch);
            let len = block.bytes.len();
            lines.count_lines(count);
            // A pipe gives what it has, and the rest may take its time.
            if len < lines.block_bytes() / 2 {
                break;
            }
            bytes += len;
        }
        Ok(Some(self.batch.finish().into()))
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
            Blocks::Lines(_) => self.next_lines(),
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

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor, Read};
    use std::path::Path;

    use highwater_engine::ValueRef;

    use super::*;
    use crate::json::Field;

    /// Ends with an error.
    struct Broken(Cursor<Vec<u8>>);

    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("broken")),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn several_blocks_make_a_batch_and_an_error_comes_after_it() {
        let (count, bad) = (30_000, 25_000);
        let line = |number| match number == bad {
            true => "x\n".to_owned(),
            false => format!("{{\"n\":{number}}}\n"),
        };
        let text: String = (1..=count).map(line).collect();
        assert!(text.len() > 2 * LineOptions::default().block_bytes && text.len() < BATCH_BYTES);
        let bytes = FileBytes {
            file: OpenFile::new(Path::new("n.jsonl"), 0),
            bytes: Box::new(Broken(Cursor::new(text.into_bytes()))),
        };
        let options = SourceOptions::of(vec![Field::Path(vec!["n".into()])]);
        let mut source = JsonSource::new(bytes, true, options);
        let events = source.next_batch().unwrap().unwrap();
        let good = || (1..=count).filter(|number| *number != bad);
        assert!(
            events
                .lines
                .iter()
                .copied()
                .eq(good().map(|number| number as u64))
        );
        for (row, number) in good().enumerate() {
            assert!(matches!(events.columns[0].get(row), ValueRef::Int(n) if n == number));
        }
        let lines: Vec<u64> = events.bad.iter().map(|bad| bad.line).collect();
        assert_eq!(lines, [bad as u64]);
        assert!(matches!(source.next_batch(), Err(ReadError::Read { .. })));
        assert!(matches!(source.next_batch(), Ok(None)));
    }
}
