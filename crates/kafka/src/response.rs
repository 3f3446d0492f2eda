//! Responses queued for the socket: pieces of memory that are written in sequence, not copied together.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use highwater_env::MemoryShare;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::Session;

/// A response in its wire format, and the next action of the connection.
#[derive(Debug, Default)]
pub(crate) struct EncodedResponse {
    /// Empty for a request without a response.
    pub pieces: Vec<Bytes>,
    /// The memory of the pieces, held until they are written.
    pub share: MemoryShare,
    pub action: ConnectionAction,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum ConnectionAction {
    #[default]
    Continue,
    Authenticated(Session),
    /// Reading pauses for the throttle time of the response.
    Pause(Duration),
    /// Close once the response, if any, is written.
    Close,
}

impl EncodedResponse {
    pub(crate) fn then(self, action: ConnectionAction) -> EncodedResponse {
        EncodedResponse { action, ..self }
    }
}

/// A response being encoded. Its first four bytes are reserved for the length.
#[derive(Debug)]
pub(crate) struct Frame {
    pub text: BytesMut,
    /// Pieces that are not copied, each with its position in the text.
    inserted: Vec<(usize, Bytes)>,
}

#[derive(Debug, thiserror::Error)]
#[error("it is longer than 2 GiB")]
pub(crate) struct FrameTooLong;

impl Frame {
    pub(crate) fn with_capacity(bytes: usize) -> Frame {
        let mut text = BytesMut::with_capacity(bytes);
        text.extend_from_slice(&[0; 4]);
        Frame {
            text,
            inserted: Vec::new(),
        }
    }

    /// Inserts a piece without copying it.
    pub(crate) fn insert(&mut self, piece: Bytes) {
        self.inserted.push((self.text.len(), piece));
    }

    pub(crate) fn finish(mut self) -> Result<EncodedResponse, FrameTooLong> {
        let inserted: usize = self.inserted.iter().map(|(_, piece)| piece.len()).sum();
        let length = i32::try_from(self.text.len() - 4 + inserted).map_err(|_| FrameTooLong)?;
        self.text[..4].copy_from_slice(&length.to_be_bytes());
        let mut text = self.text.freeze();
        let mut pieces = Vec::with_capacity(2 * self.inserted.len() + 1);
        let mut done = 0;
        for (at, piece) in self.inserted {
            pieces.push(text.split_to(at - done));
            pieces.push(piece);
            done = at;
        }
        pieces.push(text);
        pieces.retain(|piece| !piece.is_empty());
        Ok(EncodedResponse {
            pieces,
            ..EncodedResponse::default()
        })
    }
}

/// Responses that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pieces: VecDeque<(Bytes, MemoryShare)>,
    bytes: usize,
}

/// More slices in one system call gain nothing.
const SLICES_MAX: usize = 64;

impl Output {
    /// The last piece of a response carries its memory share.
    pub(crate) fn push(&mut self, pieces: Vec<Bytes>, share: MemoryShare) {
        self.bytes += pieces.iter().map(Bytes::len).sum::<usize>();
        let pieces = pieces
            .into_iter()
            .map(|piece| (piece, MemoryShare::default()));
        self.pieces.extend(pieces);
        if let Some((_, last)) = self.pieces.back_mut() {
            last.add(share);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes once, as much as the socket takes. Dropping the future loses nothing.
    pub(crate) async fn write_some(
        &mut self,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<usize> {
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
    fn inserted_pieces_keep_their_position_and_count_into_the_length() {
        let mut frame = Frame::with_capacity(16);
        frame.text.extend_from_slice(b"ab");
        frame.insert(Bytes::from_static(b"XYZ"));
        frame.insert(Bytes::from_static(b"W"));
        frame.text.extend_from_slice(b"c");
        let pieces = frame.finish().unwrap().pieces;
        assert_eq!(pieces.concat(), b"\0\0\0\x07abXYZWc");
    }

    #[tokio::test]
    async fn a_partial_write_is_continued() {
        let mut output = Output::default();
        let pieces = [&b"abc"[..], b"defg"].map(Bytes::from_static);
        output.push(pieces.to_vec(), MemoryShare::default());
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
