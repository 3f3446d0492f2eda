//! One connection, in one task: reads requests, handles them, writes the responses in order.
//!
//! Reading pauses while too many requests are in flight, on the connection or in the whole server. TCP then slows
//! down a client that sends faster than the log appends.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use highwater_access::{ConnectionPermit, Limiter, RefusalLog, Usage};
use highwater_env::{MemoryBudget, MemoryShare};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::access::{Identity, Session};
use crate::api::Api;
use crate::broker::{self, Broker};
use crate::client_quotas::ConnectionQuotas;
use crate::frame::{FrameError, Frames};
use crate::handlers::versions;
use crate::queue::{Queue, Work};
use crate::request::{
    self, ListenerInfo, ProtocolError, RequestContext, RequestHead, peek_client_id,
};
use crate::response::{ConnectionAction, EncodedResponse, Output};
use crate::sasl::SaslExchange;
use crate::warnings::WarningLimiter;

/// No further response is built while this many bytes wait to be written.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// The longest pause of a client that exceeds its quota; it may be paused again.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The state that connections share, beyond the broker.
pub(crate) struct ServerContext {
    pub broker: Arc<Broker>,
    pub warnings: WarningLimiter,
    /// For requests in flight.
    pub memory: MemoryBudget,
    pub stop: watch::Receiver<bool>,
}

type ShareWait = Pin<Box<dyn Future<Output = MemoryShare> + Send>>;

pub(crate) struct Connection<S> {
    common: Arc<ServerContext>,
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    client: Client,
    frames: Frames,
    queue: Queue,
    output: Output,
    /// The memory for the request being read, once granted.
    share: Option<MemoryShare>,
    share_wait: Option<ShareWait>,
    /// Set while the client is throttled.
    pause: Option<Pin<Box<Sleep>>>,
    timer: Pin<Box<Sleep>>,
    /// The deadline for progress on unwritten responses.
    write_deadline: Instant,
    /// Bytes were read or written since the last tick of the timer.
    active: bool,
    idle_ticks: u32,
    /// Nothing more is read; requests in flight are finished.
    draining: bool,
    stop: watch::Receiver<bool>,
}

/// The other end of the connection.
struct Client {
    address: SocketAddr,
    host: Arc<str>,
    listener: Arc<ListenerInfo>,
    /// `None` until the client has authenticated.
    session: Option<Session>,
    sasl: Option<Arc<Mutex<SaslExchange>>>,
    /// The quota of the user.
    limiter: Option<Arc<Limiter>>,
    quotas: ConnectionQuotas,
    permit: Option<ConnectionPermit>,
    refusals: Arc<RefusalLog>,
}

enum Event {
    Responded(Result<EncodedResponse, ProtocolError>),
    Wrote(io::Result<usize>),
    Read(io::Result<usize>),
    Granted(MemoryShare),
    Resumed,
    Tick,
    Stalled,
    Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    pub(crate) fn new(
        common: Arc<ServerContext>,
        stream: S,
        address: SocketAddr,
        listener: Arc<ListenerInfo>,
    ) -> Connection<S> {
        let (reader, writer) = tokio::io::split(stream);
        let options = &common.broker.options;
        let first_tick = match listener.sasl {
            true => options.login_timeout,
            false => options.idle_timeout / 2,
        };
        Connection {
            reader,
            writer,
            client: Client {
                address,
                host: format!("/{}", address.ip()).into(),
                session: (!listener.sasl).then(|| Session::new(Identity::anonymous())),
                sasl: listener.sasl.then(Arc::default),
                limiter: None,
                quotas: ConnectionQuotas::new(&common.broker),
                permit: None,
                refusals: Arc::default(),
                listener,
            },
            frames: Frames::new(options.frame_bytes_max),
            queue: Queue::default(),
            output: Output::default(),
            share: None,
            share_wait: None,
            pause: None,
            timer: Box::pin(tokio::time::sleep(first_tick)),
            write_deadline: Instant::now(),
            active: false,
            idle_ticks: 0,
            draining: false,
            stop: common.stop.clone(),
            common,
        }
    }

    /// Gives the client a session before its first request.
    pub(crate) fn with_session(mut self, session: Option<Session>) -> Connection<S> {
        if let Some(session) = session {
            self.authenticate(session);
        }
        self
    }

    pub(crate) async fn run(mut self) {
        self.draining |= *self.stop.borrow();
        loop {
            self.take_requests();
            let (broker, client) = (&self.common.broker, &self.client);
            self.queue
                .begin_first(|head, frame| client.begin(broker, head, frame));
            if self.draining && self.queue.is_empty() && self.output.bytes() == 0 {
                break;
            }
            let event = self.next_event().await;
            if !self.handle(event) {
                break;
            }
        }
    }

    /// Responses come before writes, so that those that are ready together are written together. Writes come
    /// before reads, so that memory is freed before more is taken.
    async fn next_event(&mut self) -> Event {
        let reads = self.may_read();
        let length = self.frames.length(self.client.session.is_some());
        let buffer = self
            .frames
            .read_buffer(length.ok().flatten().filter(|_| reads));
        let output = &mut self.output;
        let unwritten = output.bytes() > 0;
        let may_respond = !self.queue.is_empty() && output.bytes() < OUTPUT_BYTES_MAX;
        tokio::select! {
            biased;
            response = self.queue.first(), if may_respond => Event::Responded(response),
            written = output.write_some(&mut self.writer), if unwritten => {
                Event::Wrote(written)
            }
            granted = ready(&mut self.share_wait), if self.share_wait.is_some() => {
                Event::Granted(granted)
            }
            () = ready(&mut self.pause), if self.pause.is_some() => Event::Resumed,
            read = self.reader.read_buf(buffer), if reads => Event::Read(read),
            () = tokio::time::sleep_until(self.write_deadline), if unwritten => Event::Stalled,
            () = &mut self.timer => Event::Tick,
            _ = self.stop.changed(), if !self.draining => Event::Stop,
        }
    }

    /// Returns false if the connection ends.
    fn handle(&mut self, event: Event) -> bool {
        let metrics = &self.common.broker.metrics;
        match event {
            Event::Responded(Ok(response)) => self.respond(response),
            Event::Responded(Err(error)) => self.fail(&error),
            Event::Wrote(Ok(bytes)) => {
                self.active = true;
                metrics.bytes_out.add(bytes as u64);
                if self.output.bytes() > 0 {
                    self.extend_write_deadline();
                }
            }
            Event::Read(Ok(bytes)) if bytes > 0 => {
                self.active = true;
                metrics.bytes_in.add(bytes as u64);
            }
            // The client has disconnected, so the requests in flight have no receiver.
            Event::Read(_) | Event::Wrote(Err(_)) => return false,
            Event::Granted(share) => {
                self.share_wait = None;
                self.share = Some(share);
            }
            Event::Resumed => self.pause = None,
            Event::Tick => return self.tick(),
            Event::Stalled => {
                let reason = "the client does not read its responses";
                let address = self.client.address.ip();
                self.common.warnings.connection_closed(address, &reason);
                return false;
            }
            Event::Stop => self.draining = true,
        }
        true
    }

    fn respond(&mut self, response: EncodedResponse) {
        let bytes: usize = response.pieces.iter().map(Bytes::len).sum();
        self.charge(Usage::BytesOut, bytes);
        if self.output.bytes() == 0 {
            self.extend_write_deadline();
        }
        self.output.push(response.pieces, response.share);
        match response.action {
            ConnectionAction::Continue => {}
            ConnectionAction::Authenticated(session) => {
                self.authenticate(session);
            }
            ConnectionAction::Pause(time) => self.pause = Some(Box::pin(tokio::time::sleep(time))),
            ConnectionAction::Close => self.close(),
        }
    }

    /// Sets the user of the connection. One that has as many connections as it may have is disconnected.
    fn authenticate(&mut self, session: Session) {
        let authorizer = &self.common.broker.services.authorizer;
        let limiter = authorizer.limiter(&session.identity);
        self.client.permit = None;
        self.client.permit = limiter.as_ref().and_then(|limiter| limiter.connect());
        if limiter.is_some() && self.client.permit.is_none() {
            let reason = "the key has too many connections";
            let address = self.client.address.ip();
            self.common.warnings.connection_closed(address, &reason);
            self.close();
        }
        self.client.limiter = limiter;
        self.client.session = Some(session);
        self.set_timer(self.common.broker.options.idle_timeout / 2);
    }

    /// Charges usage to the quota of the user, and stops reading for as long as it is exceeded.
    fn charge(&mut self, usage: Usage, amount: usize) {
        let Client {
            limiter, quotas, ..
        } = &self.client;
        if limiter.is_none() && !quotas.is_limited() {
            return;
        }
        let now = self.common.broker.services.clock.elapsed();
        let mut delay = quotas.limits().charge(usage, amount as u64, now);
        if let Some(limiter) = limiter {
            limiter.charge(usage, amount as u64, now);
            delay = delay.max(limiter.delay(now));
        }
        let delay = delay.min(PAUSE_MAX);
        if !delay.is_zero() {
            self.common.broker.metrics.throttled.add(1);
            self.pause = Some(Box::pin(tokio::time::sleep(delay)));
        }
    }

    fn fail(&mut self, error: &ProtocolError) {
        let metrics = &self.common.broker.metrics;
        match error {
            ProtocolError::SessionExpired => metrics.sessions_expired.add(1),
            _ => metrics.malformed.add(1),
        }
        self.common
            .warnings
            .connection_closed(self.client.address.ip(), error);
        self.close();
    }

    /// Ends the connection once the finished responses are written.
    fn close(&mut self) {
        self.draining = true;
        self.queue = Queue::default();
    }

    fn extend_write_deadline(&mut self) {
        self.write_deadline = Instant::now() + self.common.broker.options.write_timeout;
    }

    fn set_timer(&mut self, time: Duration) {
        self.timer.as_mut().reset(Instant::now() + time);
    }

    /// Half an idle timeout has passed, or the login timeout. A client that waits for a response is not idle; one
    /// that does not read its responses is.
    fn tick(&mut self) -> bool {
        if self.client.session.is_none() {
            return false;
        }
        let awaits_response = !self.queue.is_empty() && self.output.bytes() == 0;
        self.idle_ticks = match std::mem::take(&mut self.active) || awaits_response {
            true => 0,
            false => self.idle_ticks + 1,
        };
        if self.queue.is_empty() {
            self.frames.release();
        }
        self.set_timer(self.common.broker.options.idle_timeout / 2);
        self.idle_ticks < 2
    }

    fn may_read(&self) -> bool {
        let options = &self.common.broker.options;
        !self.draining
            && self.pause.is_none()
            && self.share_wait.is_none()
            && self.queue.len() < options.inflight_requests_max.max(1)
            && (self.queue.is_empty() || self.queue.bytes() < options.inflight_bytes_max)
    }

    /// Queues the complete requests of the read buffer.
    fn take_requests(&mut self) {
        while self.may_read() {
            let length = match self.frames.length(self.client.session.is_some()) {
                Ok(Some(length)) => length,
                Ok(None) => return,
                Err(error) => return self.reject_frame(error),
            };
            if self.share.is_none() && !self.reserve(length) {
                return;
            }
            let Some(frame) = self.frames.next(length) else {
                return;
            };
            self.client.resolve_quotas(&self.common.broker, &frame);
            self.charge(Usage::Requests, 1);
            self.charge(Usage::BytesIn, frame.len());
            match RequestHead::read(&frame) {
                Ok(head) => {
                    let (broker, client) = (&self.common.broker, &self.client);
                    let begin = |head, frame| client.begin(broker, head, frame);
                    let share = self.share.take().unwrap_or_default();
                    self.queue.push(head, frame, share, begin);
                }
                Err(error) => return self.queue.push_error(error.into()),
            }
        }
    }

    fn reject_frame(&mut self, error: FrameError) {
        self.queue.push_error(ProtocolError::Frame(error));
        self.frames = Frames::new(0);
        self.draining = true;
    }

    /// Takes memory for a request, or begins to wait for it.
    fn reserve(&mut self, length: usize) -> bool {
        let memory = &self.common.memory;
        self.share = memory.try_take(length).ok();
        if self.share.is_none() {
            self.share_wait = Some(Box::pin(memory.take(length)));
        }
        self.share.is_some()
    }
}

/// Waits for the future, which the caller has checked to be there.
async fn ready<F: Future + ?Sized>(future: &mut Option<Pin<Box<F>>>) -> F::Output {
    match future {
        Some(future) => future.as_mut().await,
        None => std::future::pending().await,
    }
}

impl Client {
    /// Finds the quotas of the client id of a request, if there are any.
    fn resolve_quotas(&mut self, broker: &Broker, frame: &Bytes) {
        if let Some(session) = &self.session {
            let (user, own) = (&session.identity, self.limiter.as_deref());
            let client_id = || peek_client_id(frame);
            self.quotas.resolve(broker, user, own, client_id);
        }
    }

    fn begin(&self, broker: &Arc<Broker>, head: RequestHead, frame: Bytes) -> Work {
        match self.context(broker, head, frame) {
            Ok((context, body)) => broker::begin(context, body),
            Err(error) => {
                let is_refused =
                    matches!(error, ProtocolError::UnknownKey(_)) && self.session.is_some();
                let refusal = is_refused
                    .then(|| versions::unsupported_key(&head))
                    .flatten();
                if refusal.is_some() {
                    broker.metrics.errors.add(1);
                }
                Box::pin(std::future::ready(refusal.ok_or(error)))
            }
        }
    }

    fn context(
        &self,
        broker: &Arc<Broker>,
        head: RequestHead,
        mut frame: Bytes,
    ) -> Result<(RequestContext, Bytes), ProtocolError> {
        let api = Api::of(head.key).ok_or(ProtocolError::UnknownKey(head.key))?;
        let identity = self.identity(broker, api.key)?;
        let client_id = match api.reads(head.version) {
            true => request::client_id(&api, head.version, &mut frame)?,
            // The header of an unknown version cannot be read.
            false => StrBytes::default(),
        };
        let context = RequestContext {
            broker: Arc::clone(broker),
            api,
            version: head.version,
            correlation: head.correlation,
            client_id,
            identity,
            client: self.address,
            client_host: Arc::clone(&self.host),
            limiter: self.limiter.clone(),
            limits: self.quotas.limits().clone(),
            listener: Arc::clone(&self.listener),
            sasl: self.sasl.clone(),
            refusals: Arc::clone(&self.refusals),
        };
        Ok((context, frame))
    }

    /// The user whose rights a request has. Only a login needs none, or one that has expired.
    fn identity(&self, broker: &Broker, api: ApiKey) -> Result<Identity, ProtocolError> {
        let is_login = matches!(
            api,
            ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate
        );
        match &self.session {
            Some(session) => {
                let now_ms = || broker.services.clock.unix_millis();
                let expired = session.expires_ms.is_some_and(|ends| ends <= now_ms());
                match expired && !is_login {
                    true => Err(ProtocolError::SessionExpired),
                    false => Ok(session.identity.clone()),
                }
            }
            None if is_login => Ok(Identity::anonymous()),
            None => Err(ProtocolError::Unauthenticated(api as i16)),
        }
    }
}
