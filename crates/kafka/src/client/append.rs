//! What waits to be appended to a partition, and the task that sends it.
//!
//! A batch has its place when it is handed over; records that come while others are under way share the
//! next batch. Several requests are under way at once, but an answer counts only when everything before it
//! has been answered: if something goes wrong with the first, the others are waited for and all are sent
//! again, in order, with the same numbers. The broker tells by the numbers what it has already, so nothing
//! is appended twice and nothing overtakes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_log::batch::{Batch, BatchError, Builder, NewRecord, Seal, sequence_after};
use highwater_log::{AppendError, Appended, Bounds, EnqueueTime, Offset, Pending, Producer};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TransactionalId};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::cluster::{Cluster, To, UNKNOWN_MAX};
use super::connection::{CallError, Reply};
use super::errors::{Failure, Said, append_error, is_unknown, ok_or, passes};
use super::partition::Heard;
use super::pool::Lane;
use super::retry::Retry;
use super::transactions::init_producer;
use super::versions::{BY_ID, PRODUCE_IN_TRANSACTION_MAX};
use super::view::Target;
use crate::handlers::{text, topic};

/// Requests under way: brokers remember as many batches of a producer.
const UNDER_WAY_MAX: usize = 5;

pub(crate) struct Appender {
    cluster: Arc<Cluster>,
    target: Target,
    heard: Arc<Heard>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Entry>,
    bytes: usize,
    /// A task is at work.
    driven: bool,
    /// Between two tasks.
    numbers: Numbers,
}

/// Who numbers what comes without a number, and which producers the broker knows.
#[derive(Default)]
struct Numbers {
    producer: Option<Producer>,
    next: i32,
    /// Those that the broker has a batch of, so that it will notice a gap in their numbers. Only their
    /// batches may follow one that is not answered yet.
    known: BTreeSet<i64>,
}

/// More are not remembered; to forget one costs it a moment.
const KNOWN_MAX: usize = 64;

/// A batch, or what will be one when it is its turn.
struct Entry {
    content: Content,
    transaction: Option<String>,
    /// Who waits for it, each with the number of its first record.
    callers: Vec<(i32, oneshot::Sender<Result<Appended, AppendError>>)>,
}

enum Content {
    Batch(Batch),
    Records(Builder),
}

impl Entry {
    fn size(&self) -> usize {
        match &self.content {
            Content::Batch(batch) => batch.size(),
            Content::Records(records) => records.size(),
        }
    }
}

impl Appender {
    pub fn new(cluster: Arc<Cluster>, target: Target, heard: Arc<Heard>) -> Appender {
        Appender {
            cluster,
            target,
            heard,
            queue: Mutex::default(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn append(
        self: &Arc<Self>,
        batch: Batch,
        transaction: Option<String>,
    ) -> Pending<Result<Appended, AppendError>> {
        let bytes = batch.size();
        self.enqueue(bytes, |queue, caller| {
            queue.waiting.push_back(Entry {
                content: Content::Batch(batch),
                transaction,
                callers: vec![(0, caller)],
            });
        })
    }

    pub fn append_records(
        self: &Arc<Self>,
        records: &[NewRecord<'_>],
    ) -> Pending<Result<Appended, AppendError>> {
        let mut alone = Builder::new();
        push_all(&mut alone, records);
        let (bytes, max) = (alone.size(), self.bytes_max());
        if alone.is_empty() {
            let (count, last_offset_delta) = (0, -1);
            let empty = BatchError::Count {
                count,
                last_offset_delta,
            };
            return Box::pin(std::future::ready(Err(empty.into())));
        }
        if bytes > max {
            let place = self.target.place.clone();
            let refused = AppendError::TooLarge { place, bytes, max };
            return Box::pin(std::future::ready(Err(refused)));
        }
        self.enqueue(bytes, |queue, caller| {
            if let Some(Entry {
                content: Content::Records(shared),
                callers,
                ..
            }) = queue.waiting.back_mut()
                && shared.size() + bytes <= max
            {
                callers.push((shared.count(), caller));
                push_all(shared, records);
                return;
            }
            queue.waiting.push_back(Entry {
                content: Content::Records(alone),
                transaction: None,
                callers: vec![(0, caller)],
            });
        })
    }

    fn bytes_max(&self) -> usize {
        let hub = self.cluster.hub(self.target.place.hub.as_str());
        hub.map_or(usize::MAX, |hub| hub.settings.batch_bytes_max as usize)
    }

    fn enqueue(
        self: &Arc<Self>,
        bytes: usize,
        push: impl FnOnce(&mut Queue, oneshot::Sender<Result<Appended, AppendError>>),
    ) -> Pending<Result<Appended, AppendError>> {
        let place = self.target.place.clone();
        let (caller, answer) = oneshot::channel();
        {
            let mut queue = self.queue();
            let waiting = queue.bytes;
            if waiting > 0 && waiting + bytes > self.cluster.options.waiting_bytes_max {
                return Box::pin(std::future::ready(Err(AppendError::Full {
                    place,
                    waiting,
                })));
            }
            queue.bytes += bytes;
            push(&mut queue, caller);
            if !std::mem::replace(&mut queue.driven, true) {
                tokio::spawn(Arc::clone(self).drive());
            }
        }
        Box::pin(async move {
            let gone = || AppendError::Unanswered {
                place,
                reason: "the client has ended".into(),
            };
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    /// Sends what there is until there is nothing more.
    async fn drive(self: Arc<Self>) {
        let numbers = std::mem::take(&mut self.queue().numbers);
        let mut sender = Sender::new(Arc::clone(&self), numbers);
        loop {
            sender.fill();
            if !sender.flight.is_empty() {
                sender.step().await;
                continue;
            }
            let mut queue = self.queue();
            if queue.waiting.is_empty() {
                queue.driven = false;
                queue.numbers = sender.numbers;
                return;
            }
        }
    }
}

/// The task's side of it.
struct Sender {
    of: Arc<Appender>,
    flight: VecDeque<Flying>,
    numbers: Numbers,
    retry: Retry,
    unknown: u32,
}

/// A batch that is on its way, or to be sent again.
struct Flying {
    batch: Batch,
    transaction: Option<String>,
    callers: Vec<(i32, oneshot::Sender<Result<Appended, AppendError>>)>,
    own: bool,
    /// Of those with numbers of ours, whether it has its number.
    numbered: bool,
    /// It was sent and not answered, so it may be there.
    uncertain: bool,
    reply: Option<Reply<ProduceRequest>>,
}

impl Sender {
    fn new(of: Arc<Appender>, numbers: Numbers) -> Sender {
        Sender {
            retry: Retry::new(&of.cluster.options),
            of,
            flight: VecDeque::new(),
            numbers,
            unknown: 0,
        }
    }

    /// Whether another one may go out with the first unanswered.
    fn may_follow(&self, entry: &Entry) -> bool {
        let known = |producer: Option<Producer>| {
            let producer = producer.or(self.numbers.producer);
            producer.is_some_and(|producer| self.numbers.known.contains(&producer.id))
        };
        let of_entry = match &entry.content {
            Content::Batch(batch) => batch.header().producer(),
            Content::Records(_) => None,
        };
        let mut flight = self.flight.iter();
        known(of_entry) && flight.all(|flying| known(flying.batch.header().producer()))
    }

    fn fill(&mut self) {
        let of = Arc::clone(&self.of);
        let mut queue = of.queue();
        while self.flight.len() < UNDER_WAY_MAX
            && let Some(entry) = queue.waiting.front()
            && (self.flight.is_empty() || self.may_follow(entry))
            && let Some(entry) = queue.waiting.pop_front()
        {
            queue.bytes -= queue.bytes.min(entry.size());
            let batch = match entry.content {
                Content::Batch(batch) => Ok(batch),
                Content::Records(mut records) => records.seal(&Seal::default()),
            };
            match batch {
                Ok(batch) => self.flight.push_back(Flying {
                    own: batch.header().producer().is_none(),
                    batch,
                    transaction: entry.transaction,
                    callers: entry.callers,
                    numbered: false,
                    uncertain: false,
                    reply: None,
                }),
                Err(error) => answer_all(entry.callers, &Err(error.into())),
            }
        }
    }

    /// Sends what is not sent, and sees to the first answer.
    async fn step(&mut self) {
        let seen = self.of.cluster.view().number;
        let sent = self.send().await;
        let Some(first) = self.flight.front_mut() else {
            return;
        };
        let answered = match (first.reply.take(), sent) {
            (Some(reply), _) => match reply.wait().await {
                Ok(answer) => read(answer).map_err(Failure::Said),
                Err(error) => {
                    first.uncertain = true;
                    Err(Failure::Call(error))
                }
            },
            (None, Err(failure)) => Err(failure),
            // Nothing was wrong and nothing was sent, which the next step will do.
            (None, Ok(())) => return,
        };
        match answered {
            Ok(answer) => self.done(&answer),
            Err(failure) => self.failed(failure, seen).await,
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        if self.flight.iter().all(|flying| flying.reply.is_some()) {
            return Ok(());
        }
        self.number().await?;
        let of = &self.of;
        let address = of.cluster.find(&To::Leader(of.target.clone())).await?;
        let connection = of.cluster.pool.lane(&address, Lane::Append).await;
        let connection = connection.map_err(Failure::Call)?;
        for flying in self
            .flight
            .iter_mut()
            .filter(|flying| flying.reply.is_none())
        {
            let version = connection.version::<ProduceRequest>(flying.version_max(&of.target));
            let version = version.map_err(Failure::Call)?;
            let request = flying.request(version, &of.target, &of.cluster);
            let reply = connection.send(version, &request).await;
            flying.reply = Some(reply.map_err(Failure::Call)?);
        }
        Ok(())
    }

    /// Gives numbers to those that need one.
    async fn number(&mut self) -> Result<(), Failure> {
        if !self
            .flight
            .iter()
            .any(|flying| flying.own && !flying.numbered)
        {
            return Ok(());
        }
        let producer = match self.numbers.producer {
            Some(producer) => producer,
            None => {
                let fresh = init_producer(&self.of.cluster).await?;
                (self.numbers.producer, self.numbers.next) = (Some(fresh), 0);
                fresh
            }
        };
        for flying in &mut self.flight {
            if flying.own && !flying.numbered {
                flying.batch.number(producer, self.numbers.next);
                flying.numbered = true;
                self.numbers.next = sequence_after(flying.batch.header().last_sequence(), 1);
            }
        }
        Ok(())
    }

    fn done(&mut self, answer: &PartitionProduceResponse) {
        let Some(first) = self.flight.pop_front() else {
            return;
        };
        self.unknown = 0;
        self.retry = Retry::new(&self.of.cluster.options);
        let header = first.batch.header();
        self.know(header.producer());
        let end = Offset(answer.base_offset + i64::from(header.count()));
        let start = Offset(answer.log_start_offset.max(0));
        let time = match answer.log_append_time_ms {
            -1 => header.max_timestamp(),
            time => time,
        };
        let time = EnqueueTime(time);
        self.of.heard.hear(Bounds {
            start,
            stable: Offset(0),
            end,
            last_time: Some(time),
            bytes: 0,
        });
        for (delta, caller) in first.callers {
            let appended = Appended {
                offset: Offset(answer.base_offset + i64::from(delta)),
                time,
                start,
                repeated: false,
            };
            let _ = caller.send(Ok(appended));
        }
    }

    fn know(&mut self, producer: Option<Producer>) {
        let known = &mut self.numbers.known;
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.extend(producer.map(|producer| producer.id));
    }

    async fn failed(&mut self, failure: Failure, seen: u64) {
        self.land().await;
        self.unknown += u32::from(failure.code().is_some_and(is_unknown));
        let Some(first) = self.flight.front() else {
            return;
        };
        let forgotten = first.own && is_forgotten(failure.code());
        if forgotten {
            self.begin_anew();
        }
        let again = forgotten
            || match &failure {
                Failure::Call(CallError::Lost(_)) => true,
                Failure::Call(CallError::Refused(_)) => false,
                Failure::Said(said) => passes(said.code) && self.unknown < UNKNOWN_MAX,
            };
        if again && self.retry.pause().await {
            let leader = To::Leader(self.of.target.clone());
            return self.of.cluster.look_again(&leader, seen).await;
        }
        self.give_up(failure);
    }

    /// Waits for the other answers, which do not count.
    async fn land(&mut self) {
        for flying in &mut self.flight {
            if let Some(reply) = flying.reply.take() {
                flying.uncertain |= reply.wait().await.is_err();
            }
        }
    }

    /// The broker no longer knows the producer: it gets another, and everything another number.
    fn begin_anew(&mut self) {
        self.numbers.producer = None;
        for flying in &mut self.flight {
            flying.numbered = false;
        }
    }

    /// The first one fails; the others take its place.
    fn give_up(&mut self, failure: Failure) {
        let Some(first) = self.flight.pop_front() else {
            return;
        };
        self.retry = Retry::new(&self.of.cluster.options);
        self.unknown = 0;
        let place = &self.of.target.place;
        let error = match &failure {
            Failure::Said(said) if !first.uncertain => {
                append_error(place, first.batch.header(), first.batch.size(), said)
            }
            failure => AppendError::Unanswered {
                place: place.clone(),
                reason: failure.to_string(),
            },
        };
        if first.own && first.uncertain {
            self.begin_anew();
        } else if first.own && first.numbered {
            // It took no number, so the others move up.
            self.numbers.next = first.batch.header().base_sequence();
            for flying in &mut self.flight {
                flying.numbered = false;
            }
        }
        answer_all(first.callers, &Err(error));
    }
}

impl Flying {
    fn version_max(&self, target: &Target) -> i16 {
        match (&self.transaction, target.by_id) {
            (Some(_), _) => PRODUCE_IN_TRANSACTION_MAX,
            (None, true) => i16::MAX,
            (None, false) => BY_ID - 1,
        }
    }

    fn request(&self, version: i16, target: &Target, cluster: &Cluster) -> ProduceRequest {
        let data = PartitionProduceData::default()
            .with_index(target.place.partition as i32)
            .with_records(Some(self.batch.to_bytes()));
        let of_hub = TopicProduceData::default().with_partition_data(vec![data]);
        let of_hub = match version >= BY_ID {
            true => of_hub.with_topic_id(Uuid::from_bytes(target.id.0)),
            false => of_hub.with_name(topic(target.place.hub.as_str())),
        };
        let transaction = self.transaction.as_deref();
        ProduceRequest::default()
            .with_transactional_id(transaction.map(|id| TransactionalId(text(id))))
            .with_acks(-1)
            .with_timeout_ms(cluster.options.request_timeout.as_millis() as i32)
            .with_topic_data(vec![of_hub])
    }
}

fn push_all(builder: &mut Builder, records: &[NewRecord<'_>]) {
    for record in records {
        builder.push(record);
    }
}

fn answer_all(
    callers: Vec<(i32, oneshot::Sender<Result<Appended, AppendError>>)>,
    answer: &Result<Appended, AppendError>,
) {
    for (_, caller) in callers {
        let _ = caller.send(answer.clone());
    }
}

/// Codes that say that the broker has lost or outlived what it knew of a producer.
fn is_forgotten(code: Option<Code>) -> bool {
    matches!(
        code,
        Some(
            Code::OutOfOrderSequenceNumber
                | Code::UnknownProducerId
                | Code::InvalidProducerEpoch
                | Code::InvalidProducerIdMapping
        )
    )
}

fn read(answer: ProduceResponse) -> Result<PartitionProduceResponse, Said> {
    let topic = answer.responses.into_iter().next();
    let answer = topic.and_then(|topic| topic.partition_responses.into_iter().next());
    let answer = answer.ok_or(Code::UnknownServerError)?;
    ok_or(answer.error_code, answer.error_message.clone())?;
    Ok(answer)
}
