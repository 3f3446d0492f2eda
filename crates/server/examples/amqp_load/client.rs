//! The client's side of AMQP, as much as a load needs.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, BytesMut};
use highwater_amqp::{Encoder, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

const OPEN: u64 = 0x10;
const BEGIN: u64 = 0x11;
const ATTACH: u64 = 0x12;
const FLOW: u64 = 0x13;
const TRANSFER: u64 = 0x14;
const DISPOSITION: u64 = 0x15;
const DETACH: u64 = 0x16;
const CLOSE: u64 = 0x18;
const SASL_INIT: u64 = 0x41;
const SASL_OUTCOME: u64 = 0x44;
const WINDOW: u32 = 1 << 20;

pub(crate) struct Client {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    /// Messages that may be sent.
    pub(crate) credit: u32,
}

/// A frame of the node.
pub(crate) enum ClientFrame {
    Transfer { id: u32 },
    Disposition { first: u32, last: u32 },
    Other,
}

impl Client {
    /// Opens a connection with one session.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut client = Client {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            credit: 0,
        };
        client.output.put_slice(b"AMQP\x03\x01\x00\x00");
        client.put(SASL_INIT, vec![Value::symbol("ANONYMOUS")], 1);
        client.flush().await?;
        client.skip_header().await?;
        while client.read_raw().await?.0 != SASL_OUTCOME {}
        client.output.put_slice(b"AMQP\x00\x01\x00\x00");
        let open = vec![Value::string("load"), Value::string("localhost")];
        client.put(OPEN, open, 0);
        let window = || Value::U32(WINDOW);
        let begin = vec![Value::Null, Value::U32(0), window(), window()];
        client.put(BEGIN, begin, 0);
        client.flush().await?;
        client.skip_header().await?;
        while client.read_raw().await?.0 != BEGIN {}
        Ok(client)
    }

    /// Attaches a sender, and waits for credit.
    pub(crate) async fn attach_sender(&mut self, address: &str) -> Result<(), Failure> {
        self.attach(address, false).await?;
        while self.credit == 0 {
            self.read().await?;
        }
        Ok(())
    }

    pub(crate) async fn attach_receiver(
        &mut self,
        address: &str,
        credit: u32,
    ) -> Result<(), Failure> {
        self.attach(address, true).await?;
        self.put_credit(0, credit);
        self.flush().await
    }

    async fn attach(&mut self, address: &str, is_receiver: bool) -> Result<(), Failure> {
        let terminus = |code: u64, address: &str| {
            let fields = vec![Value::string(address.to_owned())];
            Value::Described(Box::new((Value::U64(code), Value::List(fields))))
        };
        let mut fields = vec![
            Value::string("load"),
            Value::U32(0),
            Value::Bool(is_receiver),
            Value::Null,
            Value::U8(u8::from(is_receiver)),
            terminus(0x28, address),
            terminus(0x29, address),
        ];
        if !is_receiver {
            fields.extend([Value::Null, Value::Null, Value::U32(0)]);
        }
        self.put(ATTACH, fields, 0);
        self.flush().await?;
        while self.read_raw().await?.0 != ATTACH {}
        Ok(())
    }

    /// Gives credit after so many messages.
    pub(crate) fn put_credit(&mut self, received: u32, credit: u32) {
        let number = Value::U32;
        let flow = vec![
            number(received),
            number(WINDOW),
            number(0),
            number(WINDOW),
            number(0),
            number(received),
            number(credit),
        ];
        self.put(FLOW, flow, 0);
    }

    pub(crate) fn put_transfer(&mut self, id: u32, format: u32, message: &[u8]) {
        self.credit -= 1;
        let at = self.begin_frame(0);
        let mut encoder = Encoder::new(&mut self.output);
        encoder.descriptor(TRANSFER);
        let list = encoder.list();
        encoder.uint(0);
        encoder.uint(id);
        encoder.binary(&id.to_be_bytes());
        encoder.uint(format);
        encoder.bool(false);
        encoder.end(list, 5);
        self.output.put_slice(message);
        self.end_frame(at);
    }

    /// Completes a message, and wants that confirmed.
    pub(crate) fn put_completion(&mut self, id: u32) {
        let at = self.begin_frame(0);
        let mut encoder = Encoder::new(&mut self.output);
        encoder.descriptor(DISPOSITION);
        let list = encoder.list();
        encoder.bool(true);
        encoder.uint(id);
        encoder.uint(id);
        encoder.bool(false);
        encoder.descriptor(0x24);
        let accepted = encoder.list();
        encoder.end(accepted, 0);
        encoder.end(list, 5);
        self.end_frame(at);
    }

    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        self.stream.write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }

    /// The next frame; a flow updates the credit.
    pub(crate) async fn read(&mut self) -> Result<ClientFrame, Failure> {
        let (code, fields) = self.read_raw().await?;
        let number = |at: usize| match fields.get(at) {
            Some(Value::U32(number)) => *number,
            _ => 0,
        };
        Ok(match code {
            TRANSFER => ClientFrame::Transfer { id: number(1) },
            DISPOSITION => ClientFrame::Disposition {
                first: number(1),
                last: number(2),
            },
            FLOW => {
                if matches!(fields.get(4), Some(Value::U32(_))) {
                    self.credit = number(6);
                }
                ClientFrame::Other
            }
            DETACH | CLOSE => return Err(format!("the node ends it: {fields:?}").into()),
            _ => ClientFrame::Other,
        })
    }

    pub(crate) fn has_frame(&self) -> bool {
        let length = self
            .input
            .get(..4)
            .map(|mut bytes| bytes.get_u32() as usize);
        length.is_some_and(|length| self.input.len() >= length)
    }

    /// The code and the scalar fields of the next frame. Later bytes are skipped.
    async fn read_raw(&mut self) -> Result<(u64, Vec<Value<'static>>), Failure> {
        loop {
            while !self.has_frame() {
                if self.stream.read_buf(&mut self.input).await? == 0 {
                    return Err("the node closed the connection".into());
                }
            }
            let length = (&self.input[..4]).get_u32() as usize;
            let frame = self.input.split_to(length);
            if length > 8 {
                return Ok(read_fields(&frame[8..]));
            }
        }
    }

    async fn skip_header(&mut self) -> Result<(), Failure> {
        while self.input.len() < 8 {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err("the node closed the connection".into());
            }
        }
        self.input.advance(8);
        Ok(())
    }

    fn put(&mut self, code: u64, fields: Vec<Value<'static>>, kind: u8) {
        let at = self.begin_frame(kind);
        let described = Value::Described(Box::new((Value::U64(code), Value::List(fields))));
        described.encode(&mut self.output);
        self.end_frame(at);
    }

    fn begin_frame(&mut self, kind: u8) -> usize {
        let at = self.output.len();
        self.output.put_slice(&[0, 0, 0, 0, 2, kind, 0, 0]);
        at
    }

    fn end_frame(&mut self, at: usize) {
        let length = (self.output.len() - at) as u32;
        self.output[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// The code of a performative, and its fields up to the first that is no number, flag, null or text.
fn read_fields(mut bytes: &[u8]) -> (u64, Vec<Value<'static>>) {
    // A small code: all performatives have one.
    let code = u64::from(bytes[2]);
    bytes.advance(3);
    let count = match bytes.get_u8() {
        0xd0 => {
            bytes.advance(4);
            bytes.get_u32()
        }
        0xc0 => {
            bytes.advance(1);
            u32::from(bytes.get_u8())
        }
        _ => 0,
    };
    let mut fields = Vec::with_capacity(7);
    for _ in 0..count.min(7) {
        let length = match bytes.first() {
            Some(0x40..=0x4f) => 1,
            Some(0x50..=0x5f) => 2,
            Some(0x70) => 5,
            Some(0xa0 | 0xa1 | 0xa3) => 2 + usize::from(bytes[1]),
            _ => break,
        };
        let Ok(value) = Value::decode(&bytes[..length]) else {
            break;
        };
        fields.push(value.into_owned());
        bytes.advance(length);
    }
    (code, fields)
}
