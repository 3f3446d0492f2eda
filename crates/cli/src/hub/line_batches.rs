//! Reads lines of files or standard input and groups them into request bodies of a bounded size.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::Context;
use bytes::Bytes;
use highwater_env::disk;
use tokio::sync::mpsc;

/// The body of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineBatch {
    pub(crate) body: Bytes,
    pub(crate) events: u64,
}

/// When a batch is full: by size, or by count, so that a slow input is not held back for long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    pub(crate) bytes: usize,
    pub(crate) events: u64,
}

/// Reads on a thread of its own, because files and pipes block. The thread ends when the receiver is dropped.
pub(crate) fn read_batches(
    files: Vec<PathBuf>,
    limits: BatchLimits,
) -> mpsc::Receiver<anyhow::Result<LineBatch>> {
    let (out, batches) = mpsc::channel(4);
    std::thread::spawn(move || {
        if let Err(error) = read(files, limits, &out) {
            // Without a receiver the error is not needed.
            let _ = out.blocking_send(Err(error));
        }
    });
    batches
}

fn read(
    files: Vec<PathBuf>,
    limits: BatchLimits,
    out: &mpsc::Sender<anyhow::Result<LineBatch>>,
) -> anyhow::Result<()> {
    let mut send = |batch| out.blocking_send(Ok(batch)).is_ok();
    if files.is_empty() {
        return split(io::stdin().lock(), limits, &mut send).context("cannot read standard input");
    }
    for path in files {
        let file = match path.as_os_str() == "-" {
            true => Box::new(io::stdin()) as Box<dyn Read>,
            false => Box::new(
                disk::open(&path).with_context(|| format!("cannot open {}", path.display()))?,
            ),
        };
        let read = split(BufReader::with_capacity(1 << 16, file), limits, &mut send);
        read.with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(())
}

fn split(
    mut input: impl BufRead,
    limits: BatchLimits,
    send: &mut impl FnMut(LineBatch) -> bool,
) -> io::Result<()> {
    let mut body = Vec::new();
    let mut events = 0;
    loop {
        let begin = body.len();
        let ended = input.read_until(b'\n', &mut body)? == 0;
        match body[begin..].trim_ascii().is_empty() {
            true => body.truncate(begin),
            false => events += 1,
        }
        let full = body.len() >= limits.bytes || events >= limits.events;
        if events > 0 && (full || ended) {
            let batch = LineBatch {
                body: std::mem::take(&mut body).into(),
                events: std::mem::take(&mut events),
            };
            if !send(batch) {
                return Ok(());
            }
        }
        if ended {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_batched_up_to_a_limit() {
        let limits = BatchLimits {
            bytes: 8,
            events: 3,
        };
        let mut batches = Vec::new();
        let mut send = |batch: LineBatch| {
            batches.push((
                String::from_utf8(batch.body.to_vec()).unwrap(),
                batch.events,
            ));
            true
        };
        split(&b"1\n\n2\n3\n4\n123456789\n5"[..], limits, &mut send).unwrap();
        let expected = [("1\n2\n3\n", 3), ("4\n123456789\n", 2), ("5", 1)];
        assert_eq!(
            batches,
            expected.map(|(text, events)| (text.to_owned(), events))
        );
    }
}
