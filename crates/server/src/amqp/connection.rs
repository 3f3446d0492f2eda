//! One connection, in one task: reads, dispatches, and writes.
//!
//! Reading pauses while the client has too many bytes in flight, is above its quota, or does not read its output.
//! TCP then slows the client down.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::BytesMut;
use futures_util::{FutureExt, StreamExt};
use highwater_access::ClientCertificate;
use highwater_amqp::{AmqpError, ProtocolError, condition};
use highwater_env::MemoryShare;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::broker::Broker;
use super::dispatcher::{Completion, Dispatcher, OUTPUT_BYTES_MAX};
use super::error::unauthorized;

/// The space for one read; a connection without messages in flight has this much memory at most.
const READ_BYTES: usize = 16 << 10;
/// The longest pause of a client that exceeds its quota; it may be paused again.
const PAUSE_MAX: std::time::Duration = std::time::Duration::from_secs(30);

type ShareWait = Pin<Box<dyn Future<Output = Option<MemoryShare>> + Send>>;

pub(super) struct ConnectionTask<S> {
    broker: Arc<Broker>,
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    dispatcher: Dispatcher,
    input: BytesMut,
    /// The memory of the client's unsettled messages, beyond one read.
    share: MemoryShare,
    share_wait: Option<ShareWait>,
    /// Set while the client is throttled.
    pause: Option<Pin<Box<Sleep>>>,
    timer: Pin<Box<Sleep>>,
    /// The deadline of authentication.
    login_deadline: Instant,
    /// The deadline for progress on unwritten bytes.
    write_deadline: Instant,
    /// Nothing more is read; open appends are finished.
    draining: bool,
    stop: watch::Receiver<bool>,
}

enum Activity {
    Completed(Completion),
    Wrote(io::Result<usize>),
    Read(io::Result<usize>),
    /// `None`: there was no memory in time.
    Granted(Option<MemoryShare>),
    Resumed,
    Tick,
    Stalled,
    Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ConnectionTask<S> {
    pub(super) fn new(
        broker: Arc<Broker>,
        stream: S,
        from: SocketAddr,
        anonymous: bool,
        stop: watch::Receiver<bool>,
    ) -> ConnectionTask<S> {
        let (reader, writer) = tokio::io::split(stream);
        let dispatcher = Dispatcher::new(broker.clone(), from, anonymous);
        let now = Instant::now();
        ConnectionTask {
            reader,
            writer,
            timer: Box::pin(tokio::time::sleep(dispatcher.machine.timer())),
            dispatcher,
            input: BytesMut::new(),
            share: MemoryShare::default(),
            share_wait: None,
            pause: None,
            login_deadline: now + broker.limits.login_timeout,
            write_deadline: now,
            draining: false,
            stop,
            broker,
        }
    }

    /// Gives the client the rights of its certificate, which TLS has verified.
    pub(super) fn with_certificate(
        mut self,
        certificate: Option<&ClientCertificate>,
    ) -> ConnectionTask<S> {
        if let Some(certificate) = certificate {
            self.dispatcher.log_in_by_certificate(certificate);
        }
        self
    }

    /// Serves the client. The error, if any, is worth a warning.
    pub(super) async fn run(mut self) -> Option<ProtocolError> {
        if *self.stop.borrow() {
            return None;
        }
        let mut failed = None;
        loop {
            if !self.draining && !self.dispatcher.is_full() {
                if let Err(error) = self.dispatcher.receive(&mut self.input) {
                    self.broker.metrics.malformed.add(1);
                    failed = Some(error);
                }
                self.account();
            }
            self.start_pause();
            if self.is_finished() {
                return failed;
            }
            let activity = self.next_activity().await;
            if !self.handle(activity) {
                return failed;
            }
        }
    }

    /// Whether everything is written and nothing more comes.
    fn is_finished(&mut self) -> bool {
        if self.draining && self.dispatcher.appends == 0 && !self.dispatcher.machine.is_closed() {
            let error = AmqpError::new(condition::CONNECTION_FORCED, "The node is stopping.");
            self.dispatcher.machine.close(Some(error));
        }
        self.dispatcher.machine.is_closed() && self.dispatcher.machine.output_len() == 0
    }

    /// Completions come before writes, so that those that are ready together are written together. Writes come before
    /// reads, so that memory is freed before more is taken.
    async fn next_activity(&mut self) -> Activity {
        let reads = self.may_read();
        if reads && self.input.capacity() == self.input.len() {
            self.input.reserve(READ_BYTES);
        }
        let dispatcher = &mut self.dispatcher;
        let unwritten = dispatcher.machine.output_len() > 0;
        let may_complete =
            !dispatcher.work.is_empty() && dispatcher.machine.output_len() < OUTPUT_BYTES_MAX;
        tokio::select! {
            biased;
            Some(completion) = dispatcher.work.next(), if may_complete => Activity::Completed(completion),
            written = self.writer.write_buf(dispatcher.machine.output()), if unwritten => {
                Activity::Wrote(written)
            }
            granted = ready(&mut self.share_wait), if self.share_wait.is_some() => {
                Activity::Granted(granted)
            }
            () = ready(&mut self.pause), if self.pause.is_some() => Activity::Resumed,
            read = self.reader.read_buf(&mut self.input), if reads => Activity::Read(read),
            () = tokio::time::sleep_until(self.write_deadline), if unwritten => Activity::Stalled,
            () = &mut self.timer => Activity::Tick,
            _ = self.stop.changed(), if !self.draining => Activity::Stop,
        }
    }

    /// Returns false if the connection ends at once.
    fn handle(&mut self, activity: Activity) -> bool {
        let metrics = &self.broker.metrics;
        let was_unwritten = self.dispatcher.machine.output_len() > 0;
        match activity {
            Activity::Completed(completion) => self.complete(completion),
            Activity::Wrote(Ok(bytes)) if bytes > 0 => {
                metrics.bytes_out.add(bytes as u64);
                self.extend_write_deadline();
                self.dispatcher.feed_blocked();
            }
            Activity::Read(Ok(bytes)) if bytes > 0 => metrics.bytes_in.add(bytes as u64),
            // The client has disconnected. Some close without a word.
            Activity::Read(_) | Activity::Wrote(_) => return false,
            Activity::Granted(Some(share)) => {
                self.share_wait = None;
                self.share.add(share);
            }
            Activity::Granted(None) => {
                self.share_wait = None;
                let text = "The node has no memory for the messages of the client.";
                let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
                self.dispatcher.machine.close(Some(error));
            }
            Activity::Resumed => {
                self.pause = None;
                self.dispatcher.throttle = Default::default();
                self.dispatcher.feed_blocked();
            }
            Activity::Tick => return self.tick(),
            Activity::Stalled => return false,
            Activity::Stop => {
                self.draining = true;
                self.dispatcher.stop_readers();
            }
        }
        if !was_unwritten {
            self.extend_write_deadline();
        }
        true
    }

    /// Handles this completion and all others that are ready, then settles them together.
    fn complete(&mut self, completion: Completion) {
        self.dispatcher.complete(completion);
        while self.dispatcher.machine.output_len() < OUTPUT_BYTES_MAX
            && let Some(Some(next)) = self.dispatcher.work.next().now_or_never()
        {
            self.dispatcher.complete(next);
        }
        self.dispatcher.flush_settlements();
        self.account();
    }

    fn extend_write_deadline(&mut self) {
        self.write_deadline = Instant::now() + self.broker.limits.write_timeout;
    }

    fn tick(&mut self) -> bool {
        let now = Instant::now();
        self.timer
            .as_mut()
            .reset(now + self.dispatcher.machine.timer());
        if !self.dispatcher.is_known() && now >= self.login_deadline {
            let error = unauthorized("The client has put no token in time.");
            self.dispatcher.machine.close(Some(error));
            // A client that has not opened the connection gets no answer.
            return self.dispatcher.machine.output_len() > 0;
        }
        let elapsed = self.broker.clock.elapsed();
        self.dispatcher.transactions.expire(elapsed);
        self.account();
        // The close frame names the idle timeout; the connection ends when the frame is written.
        let _ = self.dispatcher.machine.tick(elapsed);
        true
    }

    fn may_read(&self) -> bool {
        !self.draining
            && !self.dispatcher.machine.is_closed()
            && self.pause.is_none()
            && self.share_wait.is_none()
            && !self.dispatcher.is_full()
    }

    /// Pauses a client that is above its quota.
    fn start_pause(&mut self) {
        let delay = self.dispatcher.throttle.min(PAUSE_MAX);
        if !delay.is_zero() && self.pause.is_none() {
            self.broker.metrics.throttled.add(1);
            self.pause = Some(Box::pin(tokio::time::sleep(delay)));
        }
    }

    /// Adjusts the memory share of the connection to its use, or begins to wait for more.
    fn account(&mut self) {
        let machine = &self.dispatcher.machine;
        let held = self.input.len()
            + machine.incomplete_bytes()
            + self.dispatcher.inflight_bytes
            + self.dispatcher.transactions.bytes();
        let needed = held.saturating_sub(READ_BYTES);
        let Some(missing) = needed.checked_sub(self.share.bytes()) else {
            return self.share.shrink_to(needed);
        };
        if missing == 0 || self.share_wait.is_some() {
            return;
        }
        match self.broker.incoming_memory.try_take(missing) {
            Ok(more) => self.share.add(more),
            Err(_) => {
                let take = self.broker.incoming_memory.take(missing);
                let limit = self.broker.limits.write_timeout;
                let wait = async move { tokio::time::timeout(limit, take).await.ok() };
                self.share_wait = Some(Box::pin(wait));
            }
        }
    }
}

/// Waits for the future, which the caller has checked to be there.
async fn ready<F: Future + ?Sized>(future: &mut Option<Pin<Box<F>>>) -> F::Output {
    match future {
        Some(future) => future.as_mut().await,
        None => std::future::pending().await,
    }
}
