//! Sends batches, numbers those that have no number, and sends again what was not answered.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use highwater_log::batch::{Batch, BatchOptions, sequence_after};
use highwater_log::{AppendError, AppendInfo, Bounds, EnqueueTime, Offset, Producer};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TransactionalId};
use uuid::Uuid;

use super::{Appender, Callers, Content, Entry};
use crate::client::cluster::{Cluster, Destination, UNKNOWN_MAX};
use crate::client::connection::{CallError, Reply};
use crate::client::errors::{BrokerError, Failure, append_error, is_retriable, is_unknown, ok_or};
use crate::client::pool::ConnectionClass;
use crate::client::retry::Retry;
use crate::client::transactions::init_producer;
use crate::client::versions::{BY_ID, PRODUCE_IN_TRANSACTION_MAX};
use crate::client::view::Target;
use crate::handlers::{text, topic};

/// Requests under way: brokers remember as many batches of a producer.
const UNDER_WAY_MAX: usize = 5;

/// Who numbers what comes without a number, and which producers the broker knows.
#[derive(Default)]
pub(super) struct SequenceState {
    producer: Option<Producer>,
    next: i32,
    /// Those that the broker has a batch of, so that it will notice a gap in their numbers. Only their
    /// batches may follow one that is not answered yet.
    known: BTreeSet<i64>,
}

/// More are not remembered; to forget one costs it a moment.
const KNOWN_MAX: usize = 64;

/// The task's side of it.
pub(super) struct Sender {
    of: Arc<Appender>,
    pub in_flight: VecDeque<InFlightBatch>,
    pub sequences: SequenceState,
    /// Of the first one, since it failed first.
    retry: Option<Retry>,
    unknown: u32,
}

/// A batch that is on its way, or to be sent again.
pub(super) struct InFlightBatch {
    batch: Batch,
    transaction: Option<String>,
    callers: Callers,
    /// It came without a number.
    own: bool,
    /// Of those with numbers of ours, whether it has its number.
    numbered: bool,
    /// It was sent and not answered, so it may be there.
    uncertain: bool,
    reply: Option<Reply<ProduceRequest>>,
}

impl Sender {
    pub fn new(of: Arc<Appender>, sequences: SequenceState) -> Sender {
        Sender {
            retry: None,
            of,
            in_flight: VecDeque::new(),
            sequences,
            unknown: 0,
        }
    }

    /// Whether another one may go out with the first unanswered.
    fn may_follow(&self, entry: &Entry) -> bool {
        let known = |producer: Option<Producer>| {
            let producer = producer.or(self.sequences.producer);
            producer.is_some_and(|producer| self.sequences.known.contains(&producer.id))
        };
        let of_entry = match &entry.content {
            Content::Batch(batch) => batch.header().producer(),
            Content::Records(_) => None,
        };
        let mut in_flight = self.in_flight.iter();
        known(of_entry)
            && in_flight.all(|batch_in_flight| known(batch_in_flight.batch.header().producer()))
    }

    pub fn fill(&mut self) {
        let of = Arc::clone(&self.of);
        let mut queue = of.queue();
        while self.in_flight.len() < UNDER_WAY_MAX
            && let Some(entry) = queue.waiting.front()
            && (self.in_flight.is_empty() || self.may_follow(entry))
            && let Some(entry) = queue.waiting.pop_front()
        {
            queue.bytes -= entry.bytes;
            let batch = match entry.content {
                Content::Batch(batch) => Ok(batch),
                Content::Records(mut records) => records.build(&BatchOptions::default()),
            };
            match batch {
                Ok(mut batch) => {
                    batch.default_timestamp(self.of.cluster.now_ms());
                    self.in_flight.push_back(InFlightBatch {
                        own: batch.header().producer().is_none(),
                        batch,
                        transaction: entry.transaction,
                        callers: entry.callers,
                        numbered: false,
                        uncertain: false,
                        reply: None,
                    });
                }
                Err(error) => answer_all(entry.callers, &Err(error.into())),
            }
        }
    }

    /// Sends what is not sent, and sees to the first answer.
    pub async fn step(&mut self) {
        let seen = self.of.cluster.view().number;
        let sent = self.send().await;
        let Some(first) = self.in_flight.front_mut() else {
            return;
        };
        let answered = match (first.reply.take(), sent) {
            (Some(reply), _) => match reply.wait().await {
                Ok(answer) => read(answer).map_err(Failure::Broker),
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
        if self
            .in_flight
            .iter()
            .all(|batch_in_flight| batch_in_flight.reply.is_some())
        {
            return Ok(());
        }
        self.number().await?;
        let of = &self.of;
        let address = of
            .cluster
            .find(&Destination::Leader(of.target.clone()))
            .await?;
        let connection = of
            .cluster
            .pool
            .connection(&address, ConnectionClass::Append)
            .await;
        let connection = connection.map_err(Failure::Call)?;
        for batch_in_flight in self
            .in_flight
            .iter_mut()
            .filter(|batch_in_flight| batch_in_flight.reply.is_none())
        {
            let version =
                connection.version::<ProduceRequest>(batch_in_flight.version_max(&of.target));
            let version = version.map_err(Failure::Call)?;
            let request = batch_in_flight.request(version, &of.target, &of.cluster);
            let reply = connection.send(version, &request).await;
            batch_in_flight.reply = Some(reply.map_err(Failure::Call)?);
        }
        Ok(())
    }

    /// Gives numbers to those that need one.
    async fn number(&mut self) -> Result<(), Failure> {
        if !self
            .in_flight
            .iter()
            .any(|batch_in_flight| batch_in_flight.own && !batch_in_flight.numbered)
        {
            return Ok(());
        }
        let producer = match self.sequences.producer {
            Some(producer) => producer,
            None => {
                let fresh = init_producer(&self.of.cluster).await?;
                (self.sequences.producer, self.sequences.next) = (Some(fresh), 0);
                fresh
            }
        };
        for batch_in_flight in &mut self.in_flight {
            if batch_in_flight.own && !batch_in_flight.numbered {
                batch_in_flight
                    .batch
                    .assign_sequence(producer, self.sequences.next);
                batch_in_flight.numbered = true;
                self.sequences.next =
                    sequence_after(batch_in_flight.batch.header().last_sequence(), 1);
            }
        }
        Ok(())
    }

    fn done(&mut self, answer: &PartitionProduceResponse) {
        let Some(first) = self.in_flight.pop_front() else {
            return;
        };
        self.unknown = 0;
        self.retry = None;
        let header = first.batch.header();
        self.remember_producer(header.producer());
        let at = |delta: i32| Offset(answer.base_offset.saturating_add(i64::from(delta)));
        let end = at(header.count());
        let start = Offset(answer.log_start_offset.max(0));
        let time = match answer.log_append_time_ms {
            -1 => header.max_timestamp(),
            time => time,
        };
        let time = EnqueueTime(time);
        self.of.cache.observe(Bounds {
            start,
            stable: Offset(0),
            end,
            last_time: Some(time),
            bytes: 0,
        });
        for (delta, caller) in first.callers {
            let appended = AppendInfo {
                offset: at(delta),
                time,
                start,
                duplicate: false,
            };
            let _ = caller.send(Ok(appended));
        }
    }

    fn remember_producer(&mut self, producer: Option<Producer>) {
        let known = &mut self.sequences.known;
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.extend(producer.map(|producer| producer.id));
    }

    async fn failed(&mut self, failure: Failure, seen: u64) {
        self.await_replies().await;
        self.unknown += u32::from(failure.code().is_some_and(is_unknown));
        let Some(first) = self.in_flight.front() else {
            return;
        };
        let forgotten = first.own && is_unknown_producer(failure.code());
        if forgotten {
            self.begin_anew();
        }
        let again = forgotten
            || match &failure {
                Failure::Call(CallError::Lost(_)) => true,
                Failure::Call(CallError::Refused(_)) => false,
                Failure::Broker(error) => is_retriable(error.code) && self.unknown < UNKNOWN_MAX,
            };
        let options = &self.of.cluster.options;
        let retry = self.retry.get_or_insert_with(|| Retry::new(options));
        if again && retry.pause().await {
            let leader = Destination::Leader(self.of.target.clone());
            return self.of.cluster.look_again(&leader, seen).await;
        }
        self.give_up(failure);
    }

    /// Waits for the other answers, which do not count.
    async fn await_replies(&mut self) {
        for batch_in_flight in &mut self.in_flight {
            if let Some(reply) = batch_in_flight.reply.take() {
                batch_in_flight.uncertain |= reply.wait().await.is_err();
            }
        }
    }

    /// The broker no longer knows the producer: it gets another, and everything another number.
    fn begin_anew(&mut self) {
        self.sequences.producer = None;
        for batch_in_flight in &mut self.in_flight {
            batch_in_flight.numbered = false;
        }
    }

    /// The first one fails; the others take its place.
    fn give_up(&mut self, failure: Failure) {
        let Some(first) = self.in_flight.pop_front() else {
            return;
        };
        self.retry = None;
        self.unknown = 0;
        let topic_partition = &self.of.target.topic_partition;
        let error = match &failure {
            Failure::Broker(error) if !first.uncertain => {
                append_error(topic_partition, &first.batch, self.of.bytes_max(), error)
            }
            failure => AppendError::OutcomeUnknown {
                topic_partition: topic_partition.clone(),
                reason: failure.to_string(),
            },
        };
        if first.own && first.uncertain {
            self.begin_anew();
        } else if first.own && first.numbered {
            // It took no number, so the others move up.
            self.sequences.next = first.batch.header().base_sequence();
            for batch_in_flight in &mut self.in_flight {
                batch_in_flight.numbered = false;
            }
        }
        answer_all(first.callers, &Err(error));
    }
}

impl InFlightBatch {
    fn version_max(&self, target: &Target) -> i16 {
        match (&self.transaction, target.by_id) {
            (Some(_), _) => PRODUCE_IN_TRANSACTION_MAX,
            (None, true) => i16::MAX,
            (None, false) => BY_ID - 1,
        }
    }

    fn request(&self, version: i16, target: &Target, cluster: &Cluster) -> ProduceRequest {
        let data = PartitionProduceData::default()
            .with_index(target.topic_partition.partition as i32)
            .with_records(Some(self.batch.to_bytes()));
        let of_hub = TopicProduceData::default().with_partition_data(vec![data]);
        let of_hub = match version >= BY_ID {
            true => of_hub.with_topic_id(Uuid::from_bytes(target.id.0)),
            false => of_hub.with_name(topic(target.topic_partition.hub.as_str())),
        };
        let transaction = self.transaction.as_deref();
        ProduceRequest::default()
            .with_transactional_id(transaction.map(|id| TransactionalId(text(id))))
            .with_acks(-1)
            .with_timeout_ms(cluster.options.request_timeout.as_millis() as i32)
            .with_topic_data(vec![of_hub])
    }
}

fn answer_all(callers: Callers, answer: &Result<AppendInfo, AppendError>) {
    for (_, caller) in callers {
        let _ = caller.send(answer.clone());
    }
}

/// Codes that say that the broker has lost or outlived what it knew of a producer.
fn is_unknown_producer(code: Option<Code>) -> bool {
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

fn read(answer: ProduceResponse) -> Result<PartitionProduceResponse, BrokerError> {
    let topic = answer.responses.into_iter().next();
    let answer = topic.and_then(|topic| topic.partition_responses.into_iter().next());
    let answer = answer.ok_or(Code::UnknownServerError)?;
    ok_or(answer.error_code, answer.error_message.clone())?;
    Ok(answer)
}
