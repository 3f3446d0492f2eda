//! The server's side of a connection, as a pure state machine: bytes and the time in, events and bytes out.
//!
//! [`Connection::next_event`] takes frames from the owner's read buffer until one of them means something to the owner.
//! The owner answers with commands ([`Connection::accept_link`], [`Connection::settle`], [`Connection::send`]), which
//! append frames to the output. Commands for a closed link do nothing, because the client may end it while the owner
//! works: nothing may be written on a link or session that its client has ended.
//!
//! The channel and handle numbers of the client are used in both directions. Bounds: the length of a frame, sessions,
//! links, transfers in flight (windows), unsettled deliveries (credit), the size of a message, and the bytes
//! of incomplete messages together.

mod commands;
mod disposition;
mod link;
mod sasl;
mod session;
#[cfg(test)]
mod tests;
mod transaction;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::error::{AmqpError, ProtocolError, condition};
use crate::frame::{self, AMQP_HEADER, Frame, FrameKind, SASL_HEADER};
use crate::performative::{Attach, Begin, Close, Detach, End, Open, Performative, Properties};
use link::{Link, LinkEnd};
use session::Session;
pub use transaction::CoordinatorRequest;

pub use commands::{LinkTerms, Outcome, OutgoingMessage};
pub use disposition::{ClientOutcome, OutcomeKind, TrackedDelivery};

/// The smallest limit of a frame that a peer may have.
const FRAME_BYTES_MIN: u32 = 512;

/// Limits and names of the server's side.
#[derive(Clone, Debug)]
pub struct Options {
    pub container_id: String,
    /// The offered SASL mechanisms.
    pub mechanisms: Vec<String>,
    /// A longer frame ends the connection.
    pub frame_bytes_max: u32,
    pub sessions_max: u16,
    /// Over all sessions.
    pub links_max: usize,
    /// Transfers that a session may send before the window is renewed.
    pub incoming_window: u32,
    /// Bytes of messages whose last frame has not come, over all links.
    pub incomplete_bytes_max: usize,
    /// Clients must send something at least this often; after twice the time without a byte the connection ends.
    pub idle_timeout: Duration,
    /// The longest time without a frame of ours.
    pub heartbeat: Duration,
    /// Messages with a tag that the client has not settled, over all sessions.
    pub tracked_max: usize,
    /// The condition that refuses to settle a message that is not known any more.
    pub unknown_delivery: Cow<'static, str>,
}

impl Default for Options {
    fn default() -> Options {
        let mechanisms = ["MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL"];
        Options {
            container_id: "highwater".into(),
            mechanisms: mechanisms.map(str::to_owned).to_vec(),
            frame_bytes_max: 64 << 10,
            sessions_max: 1024,
            links_max: 1024,
            incoming_window: 5000,
            incomplete_bytes_max: 8 << 20,
            idle_timeout: Duration::from_secs(120),
            heartbeat: Duration::from_secs(15),
            tracked_max: 16_384,
            unknown_delivery: condition::NOT_FOUND.into(),
        }
    }
}

/// Identifies a link of a connection; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u64);

/// Something for the owner to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The client authenticates; answered by [`Connection::finish_login`]. No frame is read before that.
    Login { mechanism: String, response: Bytes },
    /// The client wants a link; answered by [`Connection::accept_link`] or [`Connection::refuse_link`].
    Attach { link: LinkId, attach: Box<Attach> },
    /// A complete message of the client, answered by [`Connection::settle`].
    Delivery(Delivery),
    /// The client has given or taken back credit, so that [`Connection::sendable`] may have changed.
    Credit { link: LinkId },
    /// The client settles messages that were sent with a tag. Unless it has `settled` them already, it waits for
    /// [`Connection::confirm`].
    Disposition {
        link: LinkId,
        deliveries: Vec<TrackedDelivery>,
        outcome: ClientOutcome,
        settled: bool,
        /// The transaction that it belongs to.
        transaction: Option<Bytes>,
    },
    /// The link was closed, by the client or for a violation.
    Detached { link: LinkId },
    /// The client has closed the connection.
    Closed,
}

/// A message that a client has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub link: LinkId,
    pub id: u32,
    pub message_format: u32,
    /// The client wants no answer.
    pub settled: bool,
    /// The transaction that it belongs to.
    pub transaction: Option<Bytes>,
    pub payload: Bytes,
}

/// The phase of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the first protocol header.
    Header,
    SaslInit,
    /// The owner decides about the login.
    Login,
    /// After SASL, before the header of AMQP itself.
    AmqpHeader,
    Open,
    Running,
    Closed,
}

/// Where a link is.
#[derive(Clone, Copy, Debug)]
struct LinkHandle {
    channel: u16,
    handle: u32,
}

pub struct Connection {
    options: Options,
    phase: Phase,
    output: BytesMut,
    /// Events of one frame beyond the first; bounded by the links of the connection.
    events: VecDeque<Event>,
    sessions: BTreeMap<u16, Session>,
    handles: HashMap<LinkId, LinkHandle>,
    next_link: u64,
    incomplete_bytes: usize,
    /// Messages that clients have not settled, over all sessions.
    tracked: usize,
    peer_properties: Properties,
    peer_frame_bytes_max: u32,
    heartbeat: Duration,
    received_at: Duration,
    sent_at: Duration,
    /// The length of the output when `sent_at` was noted.
    output_noted: usize,
}

impl Connection {
    /// Times are those of a clock that never goes back.
    pub fn new(options: Options, now: Duration) -> Connection {
        Connection {
            heartbeat: options.heartbeat,
            options,
            phase: Phase::Header,
            output: BytesMut::new(),
            events: VecDeque::new(),
            sessions: BTreeMap::new(),
            handles: HashMap::new(),
            next_link: 0,
            incomplete_bytes: 0,
            tracked: 0,
            peer_properties: Properties::default(),
            peer_frame_bytes_max: FRAME_BYTES_MIN,
            received_at: now,
            sent_at: now,
            output_noted: 0,
        }
    }

    /// The next event of `input`, from which complete frames are taken. `None`: more bytes are needed. After an error
    /// the output ends with a close frame, and the connection ends when it is written.
    pub fn next_event(
        &mut self,
        input: &mut BytesMut,
        now: Duration,
    ) -> Result<Option<Event>, ProtocolError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            match self.step(input, now) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => {
                    self.fail(&error);
                    return Err(error);
                }
            }
        }
    }

    /// Bytes to write. The owner takes from the front what it has written.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// The number of bytes to write.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Bytes of messages whose last frame has not come.
    pub fn incomplete_bytes(&self) -> usize {
        self.incomplete_bytes
    }

    /// What the client has said about itself when it opened the connection.
    pub fn peer_properties(&self) -> &Properties {
        &self.peer_properties
    }

    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Writes a heartbeat if one is due, and ends an idle connection. Called at least every [`Connection::timer`].
    pub fn tick(&mut self, now: Duration) -> Result<(), ProtocolError> {
        if self.output.len() != self.output_noted {
            self.output_noted = self.output.len();
            self.sent_at = now;
        }
        let silent = now.saturating_sub(self.received_at);
        if silent >= self.options.idle_timeout * 2 {
            let error = ProtocolError::Idle(silent.as_secs());
            self.fail(&error);
            return Err(error);
        }
        if self.phase == Phase::Running && now.saturating_sub(self.sent_at) >= self.heartbeat {
            frame::put(&mut self.output, FrameKind::Amqp, 0, |_| {});
            self.sent_at = now;
            self.output_noted = self.output.len();
        }
        Ok(())
    }

    /// The time between two calls of [`Connection::tick`].
    pub fn timer(&self) -> Duration {
        self.heartbeat / 2
    }

    /// Ends the connection with an error for the client.
    pub fn close(&mut self, error: Option<AmqpError>) {
        if matches!(self.phase, Phase::Open | Phase::Running) {
            if self.phase == Phase::Open {
                // A client that has not been greeted would not understand a close.
                self.write_open();
            }
            frame::put(&mut self.output, FrameKind::Amqp, 0, |out| {
                Close { error }.write(out);
            });
        }
        self.end();
    }

    fn fail(&mut self, error: &ProtocolError) {
        let told = AmqpError::new(error.condition(), error.to_string());
        self.close(Some(told));
    }

    fn end(&mut self) {
        self.phase = Phase::Closed;
        self.sessions.clear();
        self.handles.clear();
        (self.incomplete_bytes, self.tracked) = (0, 0);
    }

    /// Takes one header or frame; false if there is none.
    fn step(&mut self, input: &mut BytesMut, now: Duration) -> Result<bool, ProtocolError> {
        match self.phase {
            Phase::Header | Phase::AmqpHeader => {
                let Some(header) = frame::take_header(input) else {
                    return Ok(false);
                };
                self.received_at = now;
                self.header(header)?;
                Ok(true)
            }
            Phase::Login | Phase::Closed => Ok(false),
            Phase::SaslInit | Phase::Open | Phase::Running => {
                let bytes_max = self.options.frame_bytes_max as usize;
                let Some(frame) = frame::take(input, bytes_max)? else {
                    return Ok(false);
                };
                self.received_at = now;
                self.frame(frame)?;
                Ok(true)
            }
        }
    }

    fn header(&mut self, header: [u8; 8]) -> Result<(), ProtocolError> {
        match (self.phase, header) {
            (Phase::Header, SASL_HEADER) => {
                self.output.extend_from_slice(&SASL_HEADER);
                self.offer_mechanisms();
                self.phase = Phase::SaslInit;
            }
            (_, AMQP_HEADER) => {
                self.output.extend_from_slice(&AMQP_HEADER);
                self.phase = Phase::Open;
            }
            _ => {
                // The answer to an unknown protocol is the header of a known one.
                self.output.extend_from_slice(&SASL_HEADER);
                return Err(ProtocolError::Header(header));
            }
        }
        Ok(())
    }

    fn frame(&mut self, frame: Frame) -> Result<(), ProtocolError> {
        let is_sasl = self.phase == Phase::SaslInit;
        if is_sasl != (frame.kind == FrameKind::Sasl) {
            return Err(ProtocolError::Frame("its type is not expected now"));
        }
        if frame.body.is_empty() {
            return match is_sasl {
                true => Err(ProtocolError::Frame("it is empty")),
                false => Ok(()),
            };
        }
        let (performative, end) = Performative::read(&frame.body)?;
        let payload = frame.body.slice(end..);
        match (self.phase, performative) {
            (Phase::SaslInit, Performative::SaslInit(init)) => self.sasl_init(*init),
            (Phase::Open, Performative::Open(open)) => self.open(*open)?,
            (Phase::Running, performative) => {
                self.running(frame.channel, performative, payload)?;
            }
            _ => {
                let description = "a performative is not expected now";
                return Err(ProtocolError::violation(
                    condition::NOT_ALLOWED,
                    description,
                ));
            }
        }
        Ok(())
    }

    fn open(&mut self, open: Open) -> Result<(), ProtocolError> {
        let max = open.max_frame_size.unwrap_or(u32::MAX);
        if max < FRAME_BYTES_MIN {
            let description = format!("a limit of {max} bytes for frames is too small");
            return Err(ProtocolError::violation(
                condition::INVALID_FIELD,
                description,
            ));
        }
        self.peer_frame_bytes_max = max.min(self.options.frame_bytes_max);
        let idle_ms = open.idle_time_out.filter(|idle| *idle > 0);
        if let Some(idle_ms) = idle_ms {
            // A frame must arrive in time, so it is sent well before.
            let half = Duration::from_millis(u64::from(idle_ms) / 2);
            let least = Duration::from_millis(100);
            self.heartbeat = self.options.heartbeat.min(half.max(least));
        }
        self.peer_properties = open.properties;
        self.write_open();
        self.phase = Phase::Running;
        Ok(())
    }

    fn write_open(&mut self) {
        let idle_ms = self.options.idle_timeout.as_millis();
        let open = Open {
            container_id: self.options.container_id.clone(),
            max_frame_size: Some(self.options.frame_bytes_max),
            channel_max: Some(self.options.sessions_max.saturating_sub(1)),
            idle_time_out: Some(u32::try_from(idle_ms).unwrap_or(u32::MAX)),
            ..Open::default()
        };
        frame::put(&mut self.output, FrameKind::Amqp, 0, |out| open.write(out));
    }

    fn running(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: Bytes,
    ) -> Result<(), ProtocolError> {
        // Some clients detach the links of a session that they have already ended.
        let is_late = matches!(
            performative,
            Performative::Flow(_)
                | Performative::Disposition(_)
                | Performative::Detach(_)
                | Performative::End(_)
        );
        if is_late && !self.sessions.contains_key(&channel) {
            return Ok(());
        }
        match performative {
            Performative::Begin(begin) => self.begin(channel, &begin),
            Performative::Attach(attach) => self.attach(channel, attach),
            Performative::Flow(flow) => self.flow(channel, &flow),
            Performative::Transfer(transfer) => self.transfer(channel, &transfer, payload),
            Performative::Disposition(disposition) => self.disposition(channel, &disposition),
            Performative::Detach(detach) => self.client_detach(channel, &detach),
            Performative::End(_) => self.client_end(channel),
            Performative::Close(_) => {
                self.close(None);
                self.events.push_back(Event::Closed);
                Ok(())
            }
            _ => {
                let description = "a performative is not expected now";
                Err(ProtocolError::violation(
                    condition::NOT_ALLOWED,
                    description,
                ))
            }
        }
    }

    fn session(&mut self, channel: u16) -> Result<&mut Session, ProtocolError> {
        self.sessions.get_mut(&channel).ok_or_else(|| {
            let description = format!("channel {channel} has no session");
            ProtocolError::violation(condition::NOT_ALLOWED, description)
        })
    }

    fn begin(&mut self, channel: u16, begin: &Begin) -> Result<(), ProtocolError> {
        if channel >= self.options.sessions_max || self.sessions.contains_key(&channel) {
            let description = format!("channel {channel} is in use or too high");
            return Err(ProtocolError::violation(
                condition::NOT_ALLOWED,
                description,
            ));
        }
        let session = Session::new(begin, self.options.incoming_window);
        let reply = Begin {
            remote_channel: Some(channel),
            next_outgoing_id: session.next_outgoing_id,
            incoming_window: session.incoming_window,
            outgoing_window: self.options.incoming_window,
            handle_max: Some(u32::try_from(self.options.links_max).unwrap_or(u32::MAX)),
            ..Begin::default()
        };
        self.sessions.insert(channel, session);
        frame::put(&mut self.output, FrameKind::Amqp, channel, |out| {
            reply.write(out)
        });
        Ok(())
    }

    fn attach(&mut self, channel: u16, attach: Box<Attach>) -> Result<(), ProtocolError> {
        // Links that we have detached count until the client confirms it.
        let links: usize = self
            .sessions
            .values()
            .map(|session| session.links.len())
            .sum();
        let has_room = links < self.options.links_max;
        let link = LinkId(self.next_link);
        let session = self.session(channel)?;
        if session.links.contains_key(&attach.handle) {
            let description = format!("handle {} is in use", attach.handle);
            return Err(ProtocolError::violation(
                condition::HANDLE_IN_USE,
                description,
            ));
        }
        if !has_room {
            let description = "the connection has too many links";
            return Err(ProtocolError::violation(
                condition::RESOURCE_LIMIT_EXCEEDED,
                description,
            ));
        }
        let handle = attach.handle;
        session
            .links
            .insert(handle, Link::new(link, attach.clone()));
        self.next_link += 1;
        self.handles.insert(link, LinkHandle { channel, handle });
        self.events.push_back(Event::Attach { link, attach });
        Ok(())
    }

    /// The client detaches, or confirms that we did.
    fn client_detach(&mut self, channel: u16, detach: &Detach) -> Result<(), ProtocolError> {
        let session = self.session(channel)?;
        let Some(link) = session.links.remove(&detach.handle) else {
            let description = format!("handle {} is not attached", detach.handle);
            return Err(ProtocolError::violation(
                condition::UNATTACHED_HANDLE,
                description,
            ));
        };
        let was_live = self.forget(&link);
        if !matches!(link.end, LinkEnd::Detached) {
            let reply = Detach {
                handle: detach.handle,
                closed: detach.closed,
                error: None,
            };
            frame::put(&mut self.output, FrameKind::Amqp, channel, |out| {
                reply.write(out)
            });
        }
        if was_live {
            self.events.push_back(Event::Detached { link: link.id });
        }
        Ok(())
    }

    fn client_end(&mut self, channel: u16) -> Result<(), ProtocolError> {
        self.session(channel)?;
        let session = self.sessions.remove(&channel);
        self.tracked -= session.as_ref().map_or(0, |session| session.tracked.len());
        for link in session
            .into_iter()
            .flat_map(|session| session.links.into_values())
        {
            if self.forget(&link) {
                self.events.push_back(Event::Detached { link: link.id });
            }
        }
        frame::put(&mut self.output, FrameKind::Amqp, channel, |out| {
            End::default().write(out);
        });
        Ok(())
    }

    /// Removes the state of a link. False if it was detached before.
    fn forget(&mut self, link: &Link) -> bool {
        self.incomplete_bytes -= link.incomplete_bytes();
        let link_handle = self.handles.remove(&link.id);
        if let Some(link_handle) = link_handle {
            self.forget_tracked(link_handle.channel, link.id);
        }
        link_handle.is_some()
    }
}
