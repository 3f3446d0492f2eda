//! Answers as they go out: pieces of memory that are written one after another, not copied together.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::Identity;
use crate::memory_budget::Share;

/// What a request comes to.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Empty for a request that gets no answer.
    pub pieces: Vec<Bytes>,
    /// The memory that the pieces take until they are written, where it matters.
    pub share: Share,
    pub then: Then,
}

/// What becomes of the connection afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Then {
    GoOn,
    /// The client is now known.
    Known(Identity),
    /// Reading pauses, as the client was asked to.
    Pause(Duration),
    /// After the answer, if any, is written.
    Close,
}

impl Outcome {
    pub fn of(pieces: Vec<Bytes>) -> Outcome {
        Outcome {
            pieces,
            share: Share::default(),
            then: Then::GoOn,
        }
    }

    pub fn then(self, then: Then) -> Outcome {
        Outcome { then, ..self }
    }
}

/// An answer being written down, with room at its start for the length of the whole.
#[derive(Debug)]
pub(crate) struct Frame {
    pub text: BytesMut,
    /// Pieces from elsewhere, and how much of the text goes before them.
    foreign: Vec<(usize, Bytes)>,
}

impl Frame {
    pub fn with_capacity(bytes: usize) -> Frame {
        let mut text = BytesMut::with_capacity(bytes);
        text.extend_from_slice(&[0; 4]);
        Frame {
            text,
            foreign: Vec::new(),
        }
    }

    /// Puts a piece in without copying it.
    pub fn insert(&mut self, piece: Bytes) {
        self.foreign.push((self.text.len(), piece));
    }

    /// `None` if the answer is longer than a length can say.
    pub fn finish(mut self) -> Option<Vec<Bytes>> {
        let foreign: usize = self.foreign.iter().map(|(_, piece)| piece.len()).sum();
        let length = i32::try_from(self.text.len() - 4 + foreign).ok()?;
        self.text[..4].copy_from_slice(&length.to_be_bytes());
        let mut text = self.text.freeze();
        let mut pieces = Vec::with_capacity(2 * self.foreign.len() + 1);
        let mut done = 0;
        for (at, piece) in self.foreign {
            pieces.push(text.split_to(at - done));
            pieces.push(piece);
            done = at;
        }
        pieces.push(text);
        pieces.retain(|piece| !piece.is_empty());
        Some(pieces)
    }
}

/// What waits to be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pieces: VecDeque<(Bytes, Share)>,
    bytes: usize,
}

/// More slices than this gain nothing in one call.
const SLICES_MAX: usize = 64;

impl Output {
    /// The last piece of an answer carries the share of the whole.
    pub fn push(&mut self, pieces: Vec<Bytes>, share: Share) {
        self.bytes += pieces.iter().map(Bytes::len).sum::<usize>();
        let pieces = pieces.into_iter().map(|piece| (piece, Share::default()));
        self.pieces.extend(pieces);
        if let Some((_, last)) = self.pieces.back_mut() {
            last.add(share);
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes once, as much as the other side takes. Dropping the future loses nothing.
    pub async fn write_some(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = self.pieces.len().min(SLICES_MAX);
        for (slice, (piece, _)) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
        }
        let written = to.write_vectored(&slices[..count]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.advance(written);
        Ok(written)
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some((first, _)) = self.pieces.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_pieces_stand_where_they_were_put_and_the_length_counts_them() {
        let mut frame = Frame::with_capacity(16);
        frame.text.extend_from_slice(b"ab");
        frame.insert(Bytes::from_static(b"XYZ"));
        frame.insert(Bytes::from_static(b"W"));
        frame.text.extend_from_slice(b"c");
        let pieces = frame.finish().unwrap();
        assert_eq!(pieces.concat(), b"\0\0\0\x07abXYZWc");
    }

    #[tokio::test]
    async fn a_write_that_takes_little_is_continued_where_it_stopped() {
        let mut output = Output::default();
        let pieces = [&b"abc"[..], b"defg"].map(Bytes::from_static);
        output.push(pieces.to_vec(), Share::default());
        let (mut to, mut from) = tokio::io::duplex(2);
        let reader = tokio::spawn(async move {
            let mut text = String::new();
            tokio::io::AsyncReadExt::read_to_string(&mut from, &mut text)
                .await
                .map(|_| text)
        });
        while output.bytes() > 0 {
            output.write_some(&mut to).await.unwrap();
        }
        drop(to);
        assert_eq!(reader.await.unwrap().unwrap(), "abcdefg");
    }
}
