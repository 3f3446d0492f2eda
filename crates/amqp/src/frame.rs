//! Protocol headers and frames: `size, doff, type, channel, extended header, body`.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::ProtocolError;

/// `AMQP`, protocol id, version 1.0.0.
pub(crate) const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
pub(crate) const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

pub(crate) const HEAD_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Amqp,
    Sasl,
}

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub kind: FrameKind,
    pub channel: u16,
    /// Empty for a heartbeat.
    pub body: Bytes,
}

/// Takes a protocol header from the front.
pub(crate) fn take_header(input: &mut BytesMut) -> Option<[u8; 8]> {
    let header = *input.first_chunk::<8>()?;
    let _ = input.split_to(8);
    Some(header)
}

/// Takes the next frame, if it is complete. A length is refused before the bytes arrive.
pub(crate) fn take(input: &mut BytesMut, bytes_max: usize) -> Result<Option<Frame>, ProtocolError> {
    let Some((size, _)) = input.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*size) as usize;
    if length < HEAD_LEN {
        return Err(ProtocolError::Frame("it is shorter than its head"));
    }
    if length > bytes_max {
        return Err(ProtocolError::FrameLength {
            length,
            max: bytes_max,
        });
    }
    if input.len() < length {
        return Ok(None);
    }
    let mut body = input.split_to(length).freeze();
    let head = body.split_to(HEAD_LEN);
    let kind = match head[5] {
        0 => FrameKind::Amqp,
        1 => FrameKind::Sasl,
        _ => return Err(ProtocolError::Frame("its type is unknown")),
    };
    // The data offset counts words of four bytes from the start of the frame.
    let extended = usize::from(head[4]) * 4;
    let extended = extended.checked_sub(HEAD_LEN);
    let extended = extended.filter(|extended| *extended <= body.len());
    let extended = extended.ok_or(ProtocolError::Frame("its data offset is wrong"))?;
    Ok(Some(Frame {
        kind,
        channel: u16::from_be_bytes([head[6], head[7]]),
        body: body.split_off(extended),
    }))
}

/// Writes a frame whose body `write` appends.
pub(crate) fn put(
    out: &mut BytesMut,
    kind: FrameKind,
    channel: u16,
    write: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    out.put_u32(0);
    out.put_slice(&[2, u8::from(kind == FrameKind::Sasl)]);
    out.put_u16(channel);
    write(out);
    let length = u32::try_from(out.len() - start).expect("a frame is split below its limit");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}
