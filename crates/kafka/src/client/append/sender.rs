//! Sends batches, assigns sequence numbers to those without, and retries those without a response.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use highwater_log::batch::{Batch, BatchOptions, sequence_after};
use highwater_log::{AppendError, AppendInfo, Bounds, EnqueueTime, Offset, Producer};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use uuid::Uuid;

use super::{Appender, Callers, Content, Entry};
use crate::client::cluster::{Cluster, Destination, UNKNOWN_MAX};
use crate::client::connection::{CallError, Reply};
use crate::client::errors::{
    BrokerError, Failure, append_error, is_retriable, is_unknown, ok_or, single,
};
use crate::client::options::Profile;
use crate::client::pool::ConnectionClass;
use crate::client::retry::Retry;
use crate::client::transactions::init_producer;
use crate::client::versions::{BY_ID, PRODUCE_IN_TRANSACTION_MAX};
use crate::client::view::Target;

/// The limit of requests in flight: brokers remember as many batches of a producer.
const IN_FLIGHT_MAX: usize = 5;

/// The producer for batches without one, and the producers that the broker knows.
#[derive(Default)]
pub(super) struct SequenceState {
    producer: Option<Producer>,
    next: i32,
    /// Producers with a batch in the log, so that the broker detects a gap in their sequence. Only their batches may
    /// follow one that is in flight.
    known: BTreeSet<i64>,
}

impl SequenceState {
    /// The first batches of a producer.
    pub(super) fn of(producer: Producer) -> SequenceState {
        SequenceState {
            producer: Some(producer),
            ..SequenceState::default()
        }
    }
}

/// The limit of remembered producers; forgetting one costs a round trip.
const KNOWN_MAX: usize = 64;

/// The state of the sender task.
pub(super) struct Sender {
    appender: Arc<Appender>,
    pub in_flight: VecDeque<InFlightBatch>,
    pub sequences: SequenceState,
    /// The retries of the first batch.
    retry: Option<Retry>,
    unknown: u32,
}

/// A batch in flight, or to be sent again.
pub(super) struct InFlightBatch {
    batch: Batch,
    transaction: Option<String>,
    callers: Callers,
    /// It came without a sequence number.
    assigns_sequence: bool,
    /// Its sequence number is assigned.
    has_sequence: bool,
    /// It was sent without a response, so it may be in the log.
    uncertain: bool,
    reply: Option<Reply<ProduceRequest>>,
}

impl Sender {
    pub(super) fn new(appender: Arc<Appender>, sequences: SequenceState) -> Sender {
        Sender {
            retry: None,
            appender,
            in_flight: VecDeque::new(),
            sequences,
            unknown: 0,
        }
    }

    /// Whether another batch may be sent while the first is in flight.
    fn may_follow(&self, entry: &Entry) -> bool {
        let known = |producer: Option<Producer>| {
            let own = self.sequences.producer;
            let producer = match self.appender.is_claimed {
                true => own,
                false => producer.or(own),
            };
            producer.is_some_and(|producer| self.sequences.known.contains(&producer.id))
        };
        let of_entry = match &entry.content {
            Content::Batch(batch) => batch.header().producer(),
            Content::Records(_) => None,
        };
        let mut in_flight = self.in_flight.iter();
        known(of_entry) && in_flight.all(|one| known(one.batch.header().producer()))
    }

    pub(super) fn fill(&mut self) {
        let appender = Arc::clone(&self.appender);
        let has_numbers = appender.cluster.options.profile == Profile::Kafka;
        let mut queue = appender.queue();
        while self.in_flight.len() < IN_FLIGHT_MAX
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
                    batch.default_timestamp(self.appender.cluster.now_ms());
                    self.in_flight.push_back(InFlightBatch {
                        assigns_sequence: has_numbers
                            && (appender.is_claimed || batch.header().producer().is_none()),
                        batch,
                        transaction: entry.transaction,
                        callers: entry.callers,
                        has_sequence: false,
                        uncertain: false,
                        reply: None,
                    });
                }
                Err(error) => complete_all(entry.callers, &Err(error.into())),
            }
        }
    }

    /// Sends unsent batches, and handles the first response.
    pub(super) async fn step(&mut self) {
        let seen = self.appender.cluster.view().number;
        let sent = self.send().await;
        let Some(first) = self.in_flight.front_mut() else {
            return;
        };
        let answered = match (first.reply.take(), sent) {
            (Some(reply), _) => match reply.produced().await {
                Ok(response) => read(response).map_err(Failure::Broker),
                Err(error) => {
                    first.uncertain = true;
                    Err(Failure::Call(error))
                }
            },
            (None, Err(failure)) => Err(failure),
            // Nothing was sent; the next step does.
            (None, Ok(())) => return,
        };
        match answered {
            Ok(response) => self.complete_first(&response),
            Err(failure) => self.handle_failure(failure, seen).await,
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        if self.in_flight.iter().all(|one| one.reply.is_some()) {
            return Ok(());
        }
        self.assign_sequences().await?;
        let appender = &self.appender;
        let address = appender
            .cluster
            .find(&Destination::Leader(appender.target.clone()))
            .await?;
        let connection = appender
            .cluster
            .pool
            .connection(&address, ConnectionClass::Append)
            .await;
        let connection = connection.map_err(Failure::Call)?;
        for one in self.in_flight.iter_mut().filter(|one| one.reply.is_none()) {
            let version = connection.version::<ProduceRequest>(one.version_max(&appender.target));
            let version = version.map_err(Failure::Call)?;
            let request = one.request(version, &appender.target, &appender.cluster);
            let reply = connection.send(version, &request).await;
            one.reply = Some(reply.map_err(Failure::Call)?);
        }
        Ok(())
    }

    async fn assign_sequences(&mut self) -> Result<(), Failure> {
        if !self
            .in_flight
            .iter()
            .any(|one| one.assigns_sequence && !one.has_sequence)
        {
            return Ok(());
        }
        let producer = match self.sequences.producer {
            Some(producer) => producer,
            None => {
                let fresh = init_producer(&self.appender.cluster).await?;
                (self.sequences.producer, self.sequences.next) = (Some(fresh), 0);
                fresh
            }
        };
        for one in &mut self.in_flight {
            if one.assigns_sequence && !one.has_sequence {
                one.batch.assign_sequence(producer, self.sequences.next);
                one.has_sequence = true;
                self.sequences.next = sequence_after(one.batch.header().last_sequence(), 1);
            }
        }
        Ok(())
    }

    fn complete_first(&mut self, response: &PartitionProduceResponse) {
        let Some(first) = self.in_flight.pop_front() else {
            return;
        };
        self.unknown = 0;
        self.retry = None;
        let header = first.batch.header();
        self.remember_producer(header.producer());
        let at = |delta: i32| Offset(response.base_offset.saturating_add(i64::from(delta)));
        let end = at(header.count());
        let start = Offset(response.log_start_offset.max(0));
        let time = match response.log_append_time_ms {
            -1 => header.max_timestamp(),
            time => time,
        };
        let time = EnqueueTime(time);
        self.appender.cache.observe(Bounds {
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

    async fn handle_failure(&mut self, failure: Failure, seen: u64) {
        self.await_replies().await;
        self.unknown += u32::from(failure.code().is_some_and(is_unknown));
        let Some(first) = self.in_flight.front() else {
            return;
        };
        let is_unknown_producer = first.assigns_sequence
            && !self.appender.is_claimed
            && is_producer_error(failure.code());
        if is_unknown_producer {
            self.reset_producer();
        }
        let is_retriable = is_unknown_producer
            || match &failure {
                Failure::Call(CallError::Lost(_)) => true,
                Failure::Call(CallError::Refused(_)) => false,
                Failure::Broker(error) => is_retriable(error.code) && self.unknown < UNKNOWN_MAX,
            };
        let options = &self.appender.cluster.options;
        let retry = self.retry.get_or_insert_with(|| Retry::new(options));
        if is_retriable && retry.pause().await {
            let leader = Destination::Leader(self.appender.target.clone());
            return self.appender.cluster.invalidate(&leader, seen).await;
        }
        self.fail_first(failure);
    }

    /// Waits for the other responses, which are ignored.
    async fn await_replies(&mut self) {
        for one in &mut self.in_flight {
            if let Some(reply) = one.reply.take() {
                one.uncertain |= reply.produced().await.is_err();
            }
        }
    }

    /// The broker no longer knows the producer: all batches get a new producer and new sequence numbers.
    fn reset_producer(&mut self) {
        self.sequences.producer = None;
        for one in &mut self.in_flight {
            one.has_sequence = false;
        }
    }

    /// Fails the first batch; the others move up.
    fn fail_first(&mut self, failure: Failure) {
        let Some(first) = self.in_flight.pop_front() else {
            return;
        };
        self.retry = None;
        self.unknown = 0;
        let topic_partition = &self.appender.target.topic_partition;
        let error = match &failure {
            Failure::Broker(error) if !first.uncertain => append_error(
                topic_partition,
                &first.batch,
                self.appender.bytes_max(),
                error,
            ),
            failure => AppendError::OutcomeUnknown {
                topic_partition: topic_partition.clone(),
                reason: failure.to_string(),
            },
        };
        if self.appender.is_claimed {
            self.end_claim(&error);
        } else if first.assigns_sequence && first.uncertain {
            self.reset_producer();
        } else if first.assigns_sequence && first.has_sequence {
            // Its sequence number is free for the next batch.
            self.sequences.next = first.batch.header().base_sequence();
            for one in &mut self.in_flight {
                one.has_sequence = false;
            }
        }
        complete_all(first.callers, &Err(error));
    }
}

impl Sender {
    /// Fails everything after an append that failed, because the writer relies on the order.
    fn end_claim(&mut self, error: &AppendError) {
        let waiting = {
            let mut queue = self.appender.queue();
            queue.ended = Some(error.clone());
            queue.bytes = 0;
            std::mem::take(&mut queue.waiting)
        };
        let in_flight = self.in_flight.drain(..).map(|one| one.callers);
        let waiting = waiting.into_iter().map(|entry| entry.callers);
        for callers in in_flight.chain(waiting) {
            complete_all(callers, &Err(error.clone()));
        }
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
            false => of_hub.with_name(target.topic.clone()),
        };
        let names = &cluster.options.names;
        let transaction = self.transaction.as_deref();
        ProduceRequest::default()
            .with_transactional_id(transaction.map(|id| names.transaction(id)))
            .with_acks(-1)
            .with_timeout_ms(cluster.options.request_timeout.as_millis() as i32)
            .with_topic_data(vec![of_hub])
    }
}

fn complete_all(callers: Callers, response: &Result<AppendInfo, AppendError>) {
    for (_, caller) in callers {
        let _ = caller.send(response.clone());
    }
}

/// Whether the broker has lost or expired the state of a producer.
fn is_producer_error(code: Option<Code>) -> bool {
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

fn read(response: ProduceResponse) -> Result<PartitionProduceResponse, BrokerError> {
    let partition = single(single(response.responses)?.partition_responses)?;
    ok_or(partition.error_code, partition.error_message.clone())?;
    Ok(partition)
}
