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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, Sleep};

use crate::Identity;
use crate::answer::{Outcome, Output, Then};
use crate::api::Api;
use crate::broker::Broker;
use crate::call::{self, Call, Door, Head, Refusal};
use crate::complaints::Complaints;
use crate::frame::{FrameError, Frames};
use crate::queue::{Queue, Work};

/// Answers are made while less than this waits to be written.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The unit in which memory of the server is shared out.
const SHARE_BYTES: usize = 1 << 10;

/// What connections have in common beyond the broker.
pub(crate) struct Common {
    pub broker: Arc<Broker>,
    pub complaints: Complaints,
    /// Memory for requests, in shares.
    pub memory: Arc<Semaphore>,
    pub stop: watch::Receiver<bool>,
}

impl Common {
    pub fn shares(bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(SHARE_BYTES)).unwrap_or(u32::MAX)
    }

    pub fn memory_of(bytes: usize) -> Arc<Semaphore> {
        let shares = Common::shares(bytes).max(1) as usize;
        Arc::new(Semaphore::new(shares.min(Semaphore::MAX_PERMITS)))
    }
}

type ShareWait = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

pub(crate) struct Connection<S> {
    common: Arc<Common>,
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    client: Client,
    frames: Frames,
    queue: Queue,
    output: Output,
    /// The memory for the request being read, once it has been granted.
    share: Option<OwnedSemaphorePermit>,
    share_wait: Option<ShareWait>,
    /// Set while the client has been asked to wait.
    pause: Option<Pin<Box<Sleep>>>,
    timer: Pin<Box<Sleep>>,
    /// How many ticks of the timer have passed since anything happened.
    quiet_ticks: u32,
    /// Nothing more is read; what is under way is finished.
    draining: bool,
    stop: watch::Receiver<bool>,
}

/// Who is at the other end.
struct Client {
    address: IpAddr,
    host: Arc<str>,
    door: Arc<Door>,
    /// `None` until somebody has authenticated who must.
    who: Option<Identity>,
}

enum Event {
    Answered(Result<Outcome, Refusal>),
    Wrote(io::Result<usize>),
    Read(io::Result<usize>),
    Granted(Option<OwnedSemaphorePermit>),
    Resumed,
    Tick,
    Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    pub fn new(common: Arc<Common>, stream: S, address: IpAddr, door: Arc<Door>) -> Connection<S> {
        let (reader, writer) = tokio::io::split(stream);
        let options = &common.broker.options;
        let first_tick = match door.sasl {
            true => options.login_timeout,
            false => options.idle_timeout / 2,
        };
        Connection {
            reader,
            writer,
            client: Client {
                address,
                host: format!("/{address}").into(),
                who: (!door.sasl).then(Identity::anonymous),
                door,
            },
            frames: Frames::new(options.frame_bytes_max),
            queue: Queue::default(),
            output: Output::default(),
            share: None,
            share_wait: None,
            pause: None,
            timer: Box::pin(tokio::time::sleep(first_tick)),
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
            Event::Wrote(Ok(bytes)) => metrics.bytes_out.add(bytes as u64),
            Event::Read(Ok(bytes)) if bytes > 0 => {
                self.quiet_ticks = 0;
                metrics.bytes_in.add(bytes as u64);
            }
            // The client is gone, and nobody waits for what is under way.
            Event::Read(_) | Event::Wrote(Err(_)) => return false,
            Event::Granted(share) => {
                self.share_wait = None;
                self.share = share;
            }
            Event::Resumed => self.pause = None,
            Event::Tick => return self.tick(),
            Event::Stop => self.draining = true,
        }
        true
    }

    fn answered(&mut self, outcome: Outcome) {
        self.quiet_ticks = 0;
        self.output.push(outcome.pieces);
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

    fn refused(&mut self, refusal: &Refusal) {
        self.common.broker.metrics.malformed.add(1);
        self.common.complaints.about(self.client.address, refusal);
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

    /// Half an idle timeout has passed, or the time to log in.
    fn tick(&mut self) -> bool {
        if self.client.who.is_none() {
            return false;
        }
        if self.queue.is_empty() {
            self.quiet_ticks += 1;
            self.frames.rest();
        }
        self.set_timer(self.common.broker.options.idle_timeout / 2);
        self.quiet_ticks <= 2
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
            match Head::read(&frame) {
                Ok(head) => {
                    let (broker, client) = (&self.common.broker, &self.client);
                    let begin = |head, frame| client.begin(broker, head, frame);
                    self.queue.push(head, frame, self.share.take(), begin);
                }
                Err(error) => return self.queue.push_refusal(error.into()),
            }
        }
    }

    fn unreadable(&mut self, error: FrameError) {
        self.queue.push_refusal(Refusal::Frame(error));
        self.frames = Frames::new(0);
        self.draining = true;
    }

    /// Takes a share of the server's memory, or begins to wait for one.
    fn has_memory_for(&mut self, length: usize) -> bool {
        let all = Common::shares(self.common.broker.options.server_inflight_bytes_max).max(1);
        let shares = Common::shares(length).min(all);
        let memory = Arc::clone(&self.common.memory);
        match Arc::clone(&memory).try_acquire_many_owned(shares) {
            Ok(share) => self.share = Some(share),
            Err(_) => {
                let wait = async move { memory.acquire_many_owned(shares).await.ok() };
                self.share_wait = Some(Box::pin(wait));
            }
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
    fn begin(&self, broker: &Arc<Broker>, head: Head, frame: Bytes) -> Work {
        match self.call(head, frame) {
            Ok((call, body)) => broker.begin(call, body),
            Err(refusal) => Box::pin(std::future::ready(Err(refusal))),
        }
    }

    fn call(&self, head: Head, mut frame: Bytes) -> Result<(Call, Bytes), Refusal> {
        let api = Api::of(head.key).ok_or(Refusal::UnknownKey(head.key))?;
        let before_login = [
            ApiKey::ApiVersions,
            ApiKey::SaslHandshake,
            ApiKey::SaslAuthenticate,
        ];
        let who = match &self.who {
            Some(who) => who.clone(),
            None if before_login.contains(&api.key) => Identity::anonymous(),
            None => return Err(Refusal::Stranger(head.key)),
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
            door: Arc::clone(&self.door),
        };
        Ok((call, frame))
    }
}
