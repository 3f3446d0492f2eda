//! AMQP over WebSocket against a whole node, frame by frame. `tests/azure` does the same with Microsoft's SDKs.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::amqp::node;

const HEADER: &[u8] = b"AMQP\x00\x01\x00\x00";
const HANDSHAKE: &str = "GET /$servicebus/websocket HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: AMQPWSB10\r\n";

const FRAGMENT: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

struct Socket {
    stream: TcpStream,
}

impl Socket {
    async fn ask(address: SocketAddr, more: &str) -> (Socket, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{HANDSHAKE}{more}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        (Socket { stream }, String::from_utf8(head).unwrap())
    }

    async fn open(address: SocketAddr) -> Socket {
        let (socket, head) = Socket::ask(address, "").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.contains("sec-websocket-protocol: AMQPWSB10"), "{head}");
        socket
    }

    /// Sends a frame with a mask.
    async fn send(&mut self, is_last: bool, kind: u8, payload: &[u8]) {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![u8::from(is_last) << 7 | kind];
        match payload.len() {
            length @ 0..126 => frame.push(0x80 | length as u8),
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        let masked = payload.iter().enumerate();
        frame.extend(masked.map(|(at, byte)| byte ^ mask[at % 4]));
        // The node may have closed already.
        let _ = self.stream.write_all(&frame).await;
    }

    /// The kind and payload of the next frame; `None` when the node has closed.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let reading = async {
            let first = self.stream.read_u8().await.ok()?;
            let length = self.stream.read_u8().await.ok()?;
            assert!(length < 126, "an answer of the test is short");
            let mut payload = vec![0; length.into()];
            self.stream.read_exact(&mut payload).await.ok()?;
            Some((first & 0xf, payload))
        };
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, reading)
            .await
            .expect("the node answers")
    }

    /// The code with which the node closes.
    async fn closed(&mut self) -> Option<u16> {
        while let Some((kind, payload)) = self.next().await {
            if kind == CLOSE {
                return Some(u16::from_be_bytes(payload[..2].try_into().unwrap()));
            }
        }
        None
    }
}

// proves A1
#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_one_stream_whatever_the_borders_of_messages() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), "").await;
    let address = node.http_address().unwrap();
    let mut socket = Socket::open(address).await;
    socket.send(false, BINARY, &HEADER[..3]).await;
    socket.send(true, PING, b"alive?").await;
    assert_eq!(socket.next().await, Some((PONG, b"alive?".to_vec())));
    socket.send(true, FRAGMENT, &HEADER[3..6]).await;
    socket.send(true, BINARY, b"").await;
    socket.send(true, BINARY, &HEADER[6..]).await;
    assert_eq!(socket.next().await, Some((BINARY, HEADER.to_vec())));
    socket.send(true, CLOSE, &1000_u16.to_be_bytes()).await;
    assert_eq!(socket.closed().await, Some(1000));
    node.stop().await;
}

// proves A1, G2
#[tokio::test(flavor = "multi_thread")]
async fn hostile_frames_end_their_connection_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), "").await;
    let address = node.http_address().unwrap();
    let mut other = Socket::open(address).await;
    let without_mask = [0x82, 0x01, b'A'];
    let huge = [
        0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4,
    ];
    let large = [0x82, 0xff, 0, 0, 0, 0, 0, 2, 0, 0, 1, 2, 3, 4];
    let reserved = [0x83, 0x80, 1, 2, 3, 4];
    let long_ping = [&[0x89, 0xfe, 0x01, 0x00, 1, 2, 3, 4][..], &[0; 256]].concat();
    let lone_fragment = [0x80, 0x80, 1, 2, 3, 4];
    for bytes in [
        &without_mask[..],
        &huge,
        &large,
        &reserved,
        &long_ping,
        &lone_fragment,
        &[0xff; 32],
    ] {
        let mut socket = Socket::open(address).await;
        socket.stream.write_all(bytes).await.unwrap();
        let code = socket.closed().await;
        assert!(
            matches!(code, None | Some(1002 | 1009)),
            "{bytes:?}: {code:?}"
        );
    }
    // A message of many fragments is no larger than one of a single frame.
    let mut socket = Socket::open(address).await;
    let piece = vec![0; 60 << 10];
    socket.send(false, BINARY, &piece).await;
    socket.send(false, FRAGMENT, &piece).await;
    assert!(matches!(socket.closed().await, None | Some(1009)));
    let mut socket = Socket::open(address).await;
    socket.send(true, TEXT, b"AMQP").await;
    assert_eq!(socket.closed().await, Some(1003));
    let mut socket = Socket::open(address).await;
    socket.send(true, BINARY, b"GET / HTTP/1.1\r\n\r\n").await;
    assert!(socket.closed().await.is_some(), "no AMQP");

    other.send(true, BINARY, HEADER).await;
    assert_eq!(other.next().await, Some((BINARY, HEADER.to_vec())));
    node.stop().await;
}

// proves A1, U3
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_open_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), "").await;
    let address = node.http_address().unwrap();
    let (_, head) = Socket::ask(address, "origin: https://evil.example\r\n").await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let (_, head) = Socket::ask(address, "origin: http://localhost\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    node.stop().await;
}
