//! Splits a stream of bytes into requests.
//!
//! A length is checked before memory is reserved for it. Requests are slices of the read buffer, which is reused
//! when all of them are dropped.

use bytes::{Bytes, BytesMut};

/// The minimum size of a read, so that one read returns many small requests.
const READ_BYTES: usize = 8 << 10;
/// The longest request other than Produce, the only one that carries data.
const PLAIN_BYTES_MAX: usize = 4 << 20;
/// The longest request before authentication.
const UNAUTHENTICATED_BYTES_MAX: usize = 64 << 10;
/// The fixed part of the header: key, version, correlation id.
const HEAD_BYTES: usize = 8;
const LENGTH_BYTES: usize = 4;
const PRODUCE: i16 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("{0} is not a valid request length")]
    Length(i32),
    #[error("a request of {length} bytes is longer than the {max} allowed")]
    TooLong { length: usize, max: usize },
}

#[derive(Debug)]
pub(crate) struct Frames {
    buffer: BytesMut,
    bytes_max: usize,
}

impl Frames {
    pub(crate) fn new(bytes_max: usize) -> Frames {
        Frames {
            buffer: BytesMut::new(),
            bytes_max,
        }
    }

    /// The buffer to read into, with capacity for the rest of the current request.
    pub(crate) fn read_buffer(&mut self, length: Option<usize>) -> &mut BytesMut {
        let have = self.buffer.len();
        let missing = length.map_or(0, |length| (length + LENGTH_BYTES).saturating_sub(have));
        if self.buffer.capacity() - have < missing.max(1) {
            self.buffer.reserve(missing.max(READ_BYTES));
        }
        &mut self.buffer
    }

    /// Frees the buffer of an idle connection.
    pub(crate) fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// The length of the next request, once it is known and valid.
    pub(crate) fn length(&self, authenticated: bool) -> Result<Option<usize>, FrameError> {
        let Some((prefix, rest)) = self.buffer.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*prefix);
        let bytes = usize::try_from(length).map_err(|_| FrameError::Length(length))?;
        if bytes < HEAD_BYTES {
            return Err(FrameError::Length(length));
        }
        let key = rest.first_chunk().map(|key| i16::from_be_bytes(*key));
        let max = match key {
            _ if !authenticated => UNAUTHENTICATED_BYTES_MAX,
            Some(PRODUCE) | None => self.bytes_max,
            Some(_) => PLAIN_BYTES_MAX,
        };
        match bytes > max.min(self.bytes_max) {
            true => Err(FrameError::TooLong { length: bytes, max }),
            false => Ok(key.map(|_| bytes)),
        }
    }

    /// The next request, if it is complete.
    pub(crate) fn next(&mut self, length: usize) -> Option<Bytes> {
        if self.buffer.len() < LENGTH_BYTES + length {
            return None;
        }
        let mut frame = self.buffer.split_to(LENGTH_BYTES + length).freeze();
        Some(frame.split_off(LENGTH_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8]) -> Frames {
        let mut frames = Frames::new(10 << 20);
        frames.read_buffer(None).extend_from_slice(bytes);
        frames
    }

    #[test]
    fn a_length_is_refused_before_memory_is_reserved() {
        assert_eq!(
            frames(&[0x80, 0, 0, 0]).length(true),
            Err(FrameError::Length(i32::MIN))
        );
        assert_eq!(
            frames(&[0, 0, 0, 7]).length(true),
            Err(FrameError::Length(7))
        );
        let huge = [0x7F, 0xFF, 0xFF, 0xFF];
        assert!(matches!(
            frames(&huge).length(true),
            Err(FrameError::TooLong { .. })
        ));
    }

    #[test]
    fn only_an_authenticated_produce_may_be_large() {
        let five_megabytes = |key: u8| [0, 0x50, 0, 0, 0, key];
        assert_eq!(frames(&five_megabytes(0)).length(true), Ok(Some(0x50_0000)));
        assert!(frames(&five_megabytes(3)).length(true).is_err());
        assert!(frames(&five_megabytes(0)).length(false).is_err());
    }

    #[test]
    fn requests_are_split_wherever_the_reads_end() {
        let mut frames = frames(&[0, 0, 0, 8, 0, 3, 0, 1, 0, 0, 0]);
        assert_eq!(frames.length(true), Ok(Some(8)));
        assert_eq!(frames.next(8), None);
        frames
            .read_buffer(Some(8))
            .extend_from_slice(&[9, 0, 0, 0, 8, 0]);
        assert_eq!(&frames.next(8).unwrap()[..], [0, 3, 0, 1, 0, 0, 0, 9]);
        assert_eq!(frames.length(true), Ok(None));
    }
}
