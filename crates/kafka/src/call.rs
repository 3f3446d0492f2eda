//! One request: what is asked, by whom, and how its answer is put on the wire.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use crate::Identity;
use crate::answer::{Frame, Outcome};
use crate::api::Api;
use crate::frame::FrameError;
use crate::shape::{self, ShapeError};

/// Where a connection came in, as its requests need to know it.
#[derive(Debug)]
pub(crate) struct ListenerInfo {
    /// What clients are told to connect to.
    pub host: StrBytes,
    pub port: u16,
    pub sasl: bool,
}

/// A request without its body.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub api: Api,
    pub version: i16,
    pub correlation: i32,
    pub client_id: StrBytes,
    pub who: Identity,
    pub client_host: Arc<str>,
    pub listener_info: Arc<ListenerInfo>,
}

/// Why a connection is ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a request is malformed: {0}")]
    Shape(#[from] ShapeError),
    #[error("a request of kind {key}, version {version}, is malformed: {reason}")]
    Malformed {
        key: i16,
        version: i16,
        reason: String,
    },
    #[error("requests of kind {0} are not understood")]
    UnknownKey(i16),
    #[error("version {version} of requests of kind {key} is not understood")]
    UnknownVersion { key: i16, version: i16 },
    #[error("a request of kind {0} came before the client had authenticated")]
    Unauthenticated(i16),
    #[error("an answer of kind {key}, version {version}, could not be written: {reason}")]
    Answer {
        key: i16,
        version: i16,
        reason: String,
    },
}

/// The head of a request, read before anything is decided about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub key: i16,
    pub version: i16,
    pub correlation: i32,
}

impl RequestHead {
    /// Frames are long enough to have one.
    pub fn read(frame: &Bytes) -> Result<RequestHead, ShapeError> {
        let mut head = frame.get(..8).ok_or(ShapeError::Short)?;
        Ok(RequestHead {
            key: head.get_i16(),
            version: head.get_i16(),
            correlation: head.get_i32(),
        })
    }
}

/// Reads what follows the head and comes before the body.
pub(crate) fn client_id(
    api: &Api,
    version: i16,
    frame: &mut Bytes,
) -> Result<StrBytes, ProtocolError> {
    let header_version = api.key.request_header_version(version);
    let header = RequestHeader::decode(frame, header_version)
        .map_err(|error| malformed(api, version, error))?;
    Ok(header.client_id.unwrap_or_default())
}

fn malformed(api: &Api, version: i16, error: impl ToString) -> ProtocolError {
    ProtocolError::Malformed {
        key: api.key as i16,
        version,
        reason: error.to_string(),
    }
}

impl Call {
    pub fn decode<R: Request>(&self, mut body: Bytes) -> Result<R, ProtocolError> {
        shape::check(&self.api, self.version, &body)?;
        R::decode(&mut body, self.version)
            .map_err(|error| malformed(&self.api, self.version, error))
    }

    pub fn encode<A: Encodable + HeaderVersion>(
        &self,
        answer: &A,
    ) -> Result<Outcome, ProtocolError> {
        self.encode_as(answer, self.version)
    }

    pub fn encode_as<A: Encodable + HeaderVersion>(
        &self,
        answer: &A,
        version: i16,
    ) -> Result<Outcome, ProtocolError> {
        let refused = |reason: String| ProtocolError::Answer {
            key: self.api.key as i16,
            version,
            reason,
        };
        let mut frame = Frame::with_capacity(256);
        ResponseHeader::default()
            .with_correlation_id(self.correlation)
            .encode(&mut frame.text, A::header_version(version))
            .and_then(|()| answer.encode(&mut frame.text, version))
            .map_err(|error| refused(error.to_string()))?;
        let pieces = frame
            .finish()
            .ok_or_else(|| refused("it is longer than 2 GiB".into()))?;
        Ok(Outcome::of(pieces))
    }
}
