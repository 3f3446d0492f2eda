//! One connection, in one task: reads requests, works on them, writes the answers in order.
//!
//! Reading pauses when too much waits for an answer, here or in the whole server, so a client that
//! sends faster than the log takes is slowed down by its own socket.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::Identity;
use crate::answer::{Outcome, Output, Then};
use crate::api::Api;
use crate::broker::Broker;
use crate::call::{self, Call, ListenerInfo, ProtocolError, RequestHead};
use crate::frame::{FrameError, Frames};
use crate::memory_budget::{MemoryBudget, Share};
use crate::queue::{Queue, Work};
use crate::warnings::WarningLimiter;

/// Answers are made while less than this waits to be written.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// What connections have in common beyond the broker.
pub(crate) struct ServerContext {
    pub broker: Arc<Broker>,
    pub warnings: WarningLimiter,
    /// For requests that wait for their answers.
    pub memory: MemoryBudget,
    pub stop: watch::Receiver<bool>,
}

type ShareWait = Pin<Box<dyn Future<Output = Share> + Send>>;

pub(crate) struct Connection<S> {
    common: Arc<ServerContext>,
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    client: Client,
    frames: Frames,
    queue: Queue,
    output: Output,
    /// The memory for the request being read, once it has been granted.
    share: Option<Share>,
    share_wait: Option<ShareWait>,
    /// Set while the client has been asked to wait.
    pause: Option<Pin<Box<Sleep>>>,
    timer: Pin<Box<Sleep>>,
    /// Something came in or went out since the last tick of the timer.
    stirred: bool,
    /// How many ticks have passed without that.
    quiet_ticks: u32,
    /// Nothing more is read; what is under way is finished.
    draining: bool,
    stop: watch::Receiver<bool>,
}

/// Who is at the other end.
struct Client {
    address: IpAddr,
    host: Arc<str>,
    listener_info: Arc<ListenerInfo>,
    /// `None` until somebody has authenticated who must.
    who: Option<Identity>,
}

enum Event {
    Answered(Result<Outcome, ProtocolError>),
    Wrote(io::Result<usize>),
    Read(io::Result<usize>),
    Granted(Share),
    Resumed,
    Tick,
    Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    pub fn new(
        common: Arc<ServerContext>,
        stream: S,
        address: IpAddr,
        listener_info: Arc<ListenerInfo>,
    ) -> Connection<S> {
        let (reader, writer) = tokio::io::split(stream);
        let options = &common.broker.options;
        let first_tick = match listener_info.sasl {
            true => options.login_timeout,
            false => options.idle_timeout / 2,
        };
        Connection {
            reader,
            writer,
            client: Client {
                address,
                host: format!("/{address}").into(),
                who: (!listener_info.sasl).then(Identity::anonymous),
                listener_info,
            },
            frames: Frames::new(options.frame_bytes_max),
            queue: Queue::default(),
            output: Output::default(),
            share: None,
            share_wait: None,
            pause: None,
            timer: Box::pin(tokio::time::sleep(first_tick)),
            stirred: false,
            quiet_ticks: 0,
            draining: false,
            stop: common.stop.clone(),
            common,
        }
    }

    pub async fn run(mut self) {
        self.draining = *self.stop.borrow();
        loop {
            self.take_requests();
            let (broker, client) = (&self.common.broker, &self.client);
            self.queue
                .begin_first(|head, frame| client.begin(broker, head, frame));
            if self.draining && self.queue.is_empty() && self.output.bytes() == 0 {
                break;
            }
            let event = self.next_event().await;
            if !self.go_on(event) {
                break;
            }
        }
    }

    /// Answers come before writes, so that those that are ready together are written together, and
    /// writes come before reads, so that memory is freed before more is taken.
    async fn next_event(&mut self) -> Event {
        let reads = self.takes_more();
        let length = self.frames.length(self.client.who.is_some());
        let room = self.frames.room(length.ok().flatten().filter(|_| reads));
        let output = &mut self.output;
        let may_answer = !self.queue.is_empty() && output.bytes() < OUTPUT_BYTES_MAX;
        tokio::select! {
            biased;
            outcome = self.queue.first(), if may_answer => Event::Answered(outcome),
            written = output.write_some(&mut self.writer), if output.bytes() > 0 => {
                Event::Wrote(written)
            }
            granted = ready(&mut self.share_wait), if self.share_wait.is_some() => {
                Event::Granted(granted)
            }
            () = ready(&mut self.pause), if self.pause.is_some() => Event::Resumed,
            read = self.reader.read_buf(room), if reads => Event::Read(read),
            () = &mut self.timer => Event::Tick,
            _ = self.stop.changed(), if !self.draining => Event::Stop,
        }
    }

    /// What an event leads to; false ends the connection.
    fn go_on(&mut self, event: Event) -> bool {
        let metrics = &self.common.broker.metrics;
        match event {
            Event::Answered(Ok(outcome)) => self.answered(outcome),
            Event::Answered(Err(refusal)) => self.refused(&refusal),
            Event::Wrote(Ok(bytes)) => {
                self.stirred = true;
                metrics.bytes_out.add(bytes as u64);
            }
            Event::Read(Ok(bytes)) if bytes > 0 => {
                self.stirred = true;
                metrics.bytes_in.add(bytes as u64);
            }
            // The client is gone, and nobody waits for what is under way.
            Event::Read(_) | Event::Wrote(Err(_)) => return false,
            Event::Granted(share) => {
                self.share_wait = None;
                self.share = Some(share);
            }
            Event::Resumed => self.pause = None,
            Event::Tick => return self.tick(),
            Event::Stop => self.draining = true,
        }
        true
    }

    fn answered(&mut self, outcome: Outcome) {
        self.output.push(outcome.pieces, outcome.share);
        match outcome.then {
            Then::GoOn => {}
            Then::Known(who) => {
                self.client.who = Some(who);
                self.set_timer(self.common.broker.options.idle_timeout / 2);
            }
            Then::Pause(time) => self.pause = Some(Box::pin(tokio::time::sleep(time))),
            Then::Close => self.close(),
        }
    }

    fn refused(&mut self, refusal: &ProtocolError) {
        self.common.broker.metrics.malformed.add(1);
        self.common.warnings.about(self.client.address, refusal);
        self.close();
    }

    /// Ends the connection once what has been answered is written.
    fn close(&mut self) {
        self.draining = true;
        self.queue = Queue::default();
    }

    fn set_timer(&mut self, time: Duration) {
        self.timer.as_mut().reset(Instant::now() + time);
    }

    /// Half an idle timeout has passed, or the time to log in. Who waits for us is not idle, but who
    /// does not read what we write is.
    fn tick(&mut self) -> bool {
        if self.client.who.is_none() {
            return false;
        }
        let waits_for_us = !self.queue.is_empty() && self.output.bytes() == 0;
        self.quiet_ticks = match std::mem::take(&mut self.stirred) || waits_for_us {
            true => 0,
            false => self.quiet_ticks + 1,
        };
        if self.queue.is_empty() {
            self.frames.rest();
        }
        self.set_timer(self.common.broker.options.idle_timeout / 2);
        self.quiet_ticks < 2
    }

    fn takes_more(&self) -> bool {
        let options = &self.common.broker.options;
        !self.draining
            && self.pause.is_none()
            && self.share_wait.is_none()
            && self.queue.len() < options.inflight_requests_max.max(1)
            && (self.queue.is_empty() || self.queue.bytes() < options.inflight_bytes_max)
    }

    /// Queues the requests that have come in whole.
    fn take_requests(&mut self) {
        while self.takes_more() {
            let length = match self.frames.length(self.client.who.is_some()) {
                Ok(Some(length)) => length,
                Ok(None) => return,
                Err(error) => return self.unreadable(error),
            };
            if self.share.is_none() && !self.has_memory_for(length) {
                return;
            }
            let Some(frame) = self.frames.next(length) else {
                return;
            };
            match RequestHead::read(&frame) {
                Ok(head) => {
                    let (broker, client) = (&self.common.broker, &self.client);
                    let begin = |head, frame| client.begin(broker, head, frame);
                    let share = self.share.take().unwrap_or_default();
                    self.queue.push(head, frame, share, begin);
                }
                Err(error) => return self.queue.push_refusal(error.into()),
            }
        }
    }

    fn unreadable(&mut self, error: FrameError) {
        self.queue.push_refusal(ProtocolError::Frame(error));
        self.frames = Frames::new(0);
        self.draining = true;
    }

    /// Takes a share of the server's memory, or begins to wait for one.
    fn has_memory_for(&mut self, length: usize) -> bool {
        let memory = &self.common.memory;
        self.share = memory.try_take(length);
        if self.share.is_none() {
            self.share_wait = Some(Box::pin(memory.take(length)));
        }
        self.share.is_some()
    }
}

/// Waits for what is there; the caller has seen that it is.
async fn ready<F: Future + ?Sized>(future: &mut Option<Pin<Box<F>>>) -> F::Output {
    match future {
        Some(future) => future.as_mut().await,
        None => std::future::pending().await,
    }
}

impl Client {
    fn begin(&self, broker: &Arc<Broker>, head: RequestHead, frame: Bytes) -> Work {
        match self.call(head, frame) {
            Ok((call, body)) => broker.begin(call, body),
            Err(refusal) => Box::pin(std::future::ready(Err(refusal))),
        }
    }

    fn call(&self, head: RequestHead, mut frame: Bytes) -> Result<(Call, Bytes), ProtocolError> {
        let api = Api::of(head.key).ok_or(ProtocolError::UnknownKey(head.key))?;
        let before_login = [
            ApiKey::ApiVersions,
            ApiKey::SaslHandshake,
            ApiKey::SaslAuthenticate,
        ];
        let who = match &self.who {
            Some(who) => who.clone(),
            None if before_login.contains(&api.key) => Identity::anonymous(),
            None => return Err(ProtocolError::Unauthenticated(head.key)),
        };
        let client_id = match api.reads(head.version) {
            true => call::client_id(&api, head.version, &mut frame)?,
            // Nobody knows how to read what is in there.
            false => StrBytes::default(),
        };
        let call = Call {
            api,
            version: head.version,
            correlation: head.correlation,
            client_id,
            who,
            client_host: Arc::clone(&self.host),
            listener_info: Arc::clone(&self.listener_info),
        };
        Ok((call, frame))
    }
}
