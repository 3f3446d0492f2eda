//! Lines of files or standard input, packed into bodies of a bounded size.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::Context;
use bytes::Bytes;
use highwater_env::disk;
use tokio::sync::mpsc;

/// A body for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    pub body: Bytes,
    pub events: u64,
}

/// When a pack is full: by size, or by count so that a slow input is not held back for long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes: usize,
    pub events: u64,
}

/// Reads on a thread of its own, because files and pipes block, and stops when nobody listens.
pub fn packs(files: Vec<PathBuf>, limits: Limits) -> mpsc::Receiver<anyhow::Result<Pack>> {
    let (out, packs) = mpsc::channel(4);
    std::thread::spawn(move || {
        if let Err(error) = read(files, limits, &out) {
            // The receiver may be gone, and then the error is of no interest.
            let _ = out.blocking_send(Err(error));
        }
    });
    packs
}

fn read(
    files: Vec<PathBuf>,
    limits: Limits,
    out: &mpsc::Sender<anyhow::Result<Pack>>,
) -> anyhow::Result<()> {
    let mut send = |pack| out.blocking_send(Ok(pack)).is_ok();
    if files.is_empty() {
        return pack(io::stdin().lock(), limits, &mut send).context("cannot read standard input");
    }
    for path in files {
        let file = match path.as_os_str() == "-" {
            true => Box::new(io::stdin()) as Box<dyn Read>,
            false => Box::new(
                disk::open(&path).with_context(|| format!("cannot open {}", path.display()))?,
            ),
        };
        let packed = pack(BufReader::with_capacity(1 << 16, file), limits, &mut send);
        packed.with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(())
}

fn pack(
    mut input: impl BufRead,
    limits: Limits,
    send: &mut impl FnMut(Pack) -> bool,
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
            let pack = Pack {
                body: std::mem::take(&mut body).into(),
                events: std::mem::take(&mut events),
            };
            if !send(pack) {
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
    fn lines_are_packed_up_to_a_limit() {
        let limits = Limits {
            bytes: 8,
            events: 3,
        };
        let mut packed = Vec::new();
        let mut send = |pack: Pack| {
            packed.push((String::from_utf8(pack.body.to_vec()).unwrap(), pack.events));
            true
        };
        pack(&b"1\n\n2\n3\n4\n123456789\n5"[..], limits, &mut send).unwrap();
        let expected = [("1\n2\n3\n", 3), ("4\n123456789\n", 2), ("5", 1)];
        assert_eq!(
            packed,
            expected.map(|(text, events)| (text.to_owned(), events))
        );
    }
}
