//! The handshake of AMQP over WebSocket. Clients authenticate inside AMQP.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::header::{
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ring::digest;

use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::reply::{self, Reply};
use super::{auth, origin};

/// The constant of RFC 6455.
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The bytes of a key before their encoding.
const KEY_BYTES: usize = 16;
/// The names that Microsoft's SDKs and other clients of AMQP have for the protocol.
const PROTOCOLS: [&str; 2] = ["AMQPWSB10", "amqp"];

/// Answers the handshake, and serves the client in a task of its own.
pub(super) async fn open(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (app, headers) = (request.app, &request.head.headers);
    // Browsers open sockets for pages of any site, and send the certificate of the user.
    origin::check(&request.head.method, headers, &app.options.allowed_origins)?;
    if app.keys.is_empty() {
        auth::local_caller(headers)?;
    }
    let handshake = Handshake::read(headers)?;
    let none = || Error::not_found("AMQP is not served", "set amqp.listen");
    let sockets = app.amqp_sockets().ok_or_else(none)?;
    let full = || {
        Error::new(
            Code::Full,
            "too many connections of AMQP",
            "try again later",
        )
    };
    let socket = sockets.take().ok_or_else(full)?;
    let upgrade = request.head.extensions.get::<OnUpgrade>().cloned();
    let upgrade = upgrade.ok_or_else(|| wrong("the connection cannot be upgraded"))?;
    let (peer, certificate) = (request.peer(), request.certificate().cloned());
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let stream = TokioIo::new(upgraded);
            socket.serve(stream, peer, certificate).await;
        }
    });
    Ok(handshake.reply())
}

fn wrong(message: &str) -> Error {
    Error::bad(
        message,
        "docs/amqp.md says how clients connect over WebSocket",
    )
}

/// The accept key and the subprotocol of a handshake.
#[derive(Debug, PartialEq, Eq)]
struct Handshake {
    accept: String,
    protocol: &'static str,
}

impl Handshake {
    fn read(headers: &HeaderMap) -> Result<Handshake, Error> {
        if !has_word(headers, UPGRADE, "websocket") || !has_word(headers, CONNECTION, "upgrade") {
            return Err(wrong("this path is for WebSockets"));
        }
        if !has_word(headers, SEC_WEBSOCKET_VERSION, "13") {
            return Err(wrong("sec-websocket-version is not 13"));
        }
        let key = headers.get(SEC_WEBSOCKET_KEY);
        let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
        if !STANDARD
            .decode(key)
            .is_ok_and(|bytes| bytes.len() == KEY_BYTES)
        {
            return Err(wrong("sec-websocket-key is not 16 bytes in base64"));
        }
        let mut known = PROTOCOLS.into_iter();
        let protocol = known.find(|name| has_word(headers, SEC_WEBSOCKET_PROTOCOL, name));
        let protocol =
            protocol.ok_or_else(|| wrong("sec-websocket-protocol has no AMQPWSB10 and no amqp"))?;
        Ok(Handshake {
            accept: accept(key),
            protocol,
        })
    }

    fn reply(&self) -> Reply {
        let mut reply = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
        let headers = reply.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        let protocol = HeaderValue::from_static(self.protocol);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        if let Ok(accept) = HeaderValue::from_str(&self.accept) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        reply
    }
}

/// Whether one of the words of a header, separated by commas, is this one in any case.
fn has_word(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter();
    let mut words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    words.any(|given| given.trim().eq_ignore_ascii_case(word))
}

/// The answer that proves that the server speaks WebSocket. SHA-1 protects nothing here.
fn accept(key: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key.as_bytes());
    context.update(ACCEPT_SUFFIX);
    STANDARD.encode(context.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 5] = [
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "other, AMQPWSB10"),
    ];

    fn read(headers: &[(&'static str, &'static str)]) -> Result<Handshake, Error> {
        let pairs = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        Handshake::read(&pairs.collect())
    }

    // proves A1
    #[test]
    fn the_handshake_of_the_rfc_is_answered() {
        let handshake = read(&GOOD).unwrap();
        assert_eq!(handshake.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(handshake.protocol, "AMQPWSB10");
        assert_eq!(handshake.reply().status(), 101);
    }

    #[test]
    fn a_handshake_with_a_part_missing_or_wrong_is_refused() {
        for at in 0..GOOD.len() {
            let mut headers = GOOD.to_vec();
            headers.remove(at);
            assert_eq!(read(&headers).unwrap_err().code, Code::BadRequest, "{at}");
            let mut headers = GOOD.to_vec();
            headers[at].1 = "wrong";
            assert_eq!(read(&headers).unwrap_err().code, Code::BadRequest, "{at}");
        }
    }
}
