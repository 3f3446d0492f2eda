//! One stream of a shared job: reads a partition, runs the local part of the query, and writes its outputs to the
//! exchange.
//!
//! A new owner claims the state and the partition of the exchange, and only then reads the end of the exchange. It
//! continues from the last checkpoint, which may be earlier, and drops the outputs that are already in the exchange; a
//! fetch ends exactly where they end, so the first output that it writes follows the last one.

use std::io;
use std::sync::Arc;

use futures_util::future::try_join_all;
use highwater_codec::Reader;
use highwater_connect::StoreUnavailable;
use highwater_log::{AppendError, Offset, Partition};
use tokio::sync::{Semaphore, mpsc, watch};

use super::super::build::JobBuilder;
use super::super::checkpoint_store::{Checkpoints, unless_unavailable};
use super::super::feed::{Feed, StreamPosition};
use super::super::hub_stream::HubStream;
use super::super::input_logs::kafka_input;
use super::super::partition_stream::PartitionStream;
use super::super::run::Command;
use super::super::shard_state::{ShardState, is_fenced};
use super::super::start::{blocking, journal_of};
use super::super::time_journal::{JournalAccess, JournalError, TimeJournal};
use super::super::watchdog::JobThread;
use super::super::worker::Worker;
use super::assignment::ShardNumber;
use super::exchange::ExchangeError;
use super::exchange_producer::ExchangeProducer;
use super::references::ShardVote;
use super::stream_checkpoint::StreamCheckpoint;
use super::stream_run::{FeedTask, PERMITS, StreamRun};
use super::{InstanceContext, ShardExit, ShardTables};
use crate::config::ArrivalTime;

pub(super) struct StreamShard {
    pub instance: Arc<InstanceContext>,
    pub number: ShardNumber,
}

/// A stream that this instance owns.
struct OwnedStream {
    stream: HubStream,
    exchange: ExchangeProducer,
    journal: Option<TimeJournal>,
    state: Arc<ShardState>,
    /// The number of the last checkpoint.
    checkpoint: u64,
    tables: ShardTables,
}

impl From<ExchangeError> for ShardExit {
    fn from(error: ExchangeError) -> ShardExit {
        match error {
            ExchangeError::Fenced => ShardExit::Fenced(error.to_string()),
            ExchangeError::Write(_) | ExchangeError::Read(_) => {
                ShardExit::Delayed(error.to_string())
            }
            ExchangeError::Damaged { .. } => ShardExit::Failed(error.to_string()),
        }
    }
}

/// Why the store cannot be used.
pub(super) fn store_failed(error: &io::Error) -> ShardExit {
    let reason = format!("checkpoints cannot be read or written: {error}");
    match error.kind() {
        _ if is_fenced(error) => ShardExit::Fenced(reason),
        _ if StoreUnavailable::is_reason_of(error) => ShardExit::WithoutStore(reason),
        io::ErrorKind::InvalidData => ShardExit::Failed(reason),
        _ => ShardExit::Delayed(reason),
    }
}

impl StreamShard {
    /// Runs until a command ends it, or something else does.
    pub(super) async fn run(self, mut commands: mpsc::Receiver<Command>) -> ShardExit {
        let opened = tokio::select! {
            opened = self.open() => opened,
            () = super::super::handle::stop_command(&mut commands) => return ShardExit::Stopped,
        };
        if opened.is_ok() {
            self.instance.set_store_alarm(self.number, None);
        }
        let run = opened.and_then(|owned| self.launch(owned));
        match run {
            Ok(run) => run.watch(commands).await,
            Err(end) => end,
        }
    }

    /// Claims the stream and restores its state.
    async fn open(&self) -> Result<OwnedStream, ShardExit> {
        let (instance, number) = (&self.instance, self.number);
        let state = instance.shard_state(&format!("stream-{number:04}"));
        let saved = saved_state(&state, instance).await?;
        let claimed = self.claim_exchange().await?;
        let tables = ShardTables::current(instance).await?;
        let builder = JobBuilder {
            job: &instance.job,
            physical: tables.physical(&instance.job),
            clock: &instance.context.clock,
            status: &instance.status,
            state_limit: &instance.state_limit,
        };
        let stream = builder.own_stream(&instance.partitions, number);
        let mut stream = stream.map_err(|error| ShardExit::Failed(error.to_string()))?;
        stream.restore_counters(instance.status.counts(number));
        let mut exchanged = vec![Offset(0); instance.combiners];
        match &saved.checkpoint {
            Some(checkpoint) => {
                let restored = stream.restore(&mut Reader::new(&checkpoint.state));
                restored.map_err(|error| {
                    ShardExit::Failed(format!("the state of stream {number} is damaged: {error}"))
                })?;
                if checkpoint.exchanged.len() != exchanged.len() {
                    let reason = format!("the state of stream {number} is for other combiners");
                    return Err(ShardExit::Failed(reason));
                }
                exchanged.clone_from(&checkpoint.exchanged);
            }
            None => stream.begin(instance.identity.starts[number]),
        }
        tables.check(stream.watermark())?;
        let position = StreamPosition {
            next: stream.next(),
            arrived: stream.arrived(),
        };
        let routes = instance.routes.clone();
        let version = tables.version();
        let exchange =
            ExchangeProducer::open(routes, claimed, &exchanged, position, version).await?;
        if let Some(place) = exchange.lost(saved.checkpoint.is_some()) {
            return Err(ShardExit::Failed(format!(
                "records of the exchange `{place}` are lost"
            )));
        }
        let journal = self.journal(position).await?;
        Ok(OwnedStream {
            stream,
            exchange,
            journal,
            state,
            checkpoint: saved.number,
            tables,
        })
    }

    /// Claims the partitions of the exchange, one for each combiner. From then on no earlier owner writes to any of
    /// them.
    async fn claim_exchange(&self) -> Result<Vec<Arc<dyn Partition>>, ShardExit> {
        let instance = &self.instance;
        let (log, name) = (&instance.cluster.log, instance.exchange.as_str());
        let claims = (0..instance.combiners).map(|combiner| {
            let partition = instance.exchange_partition(self.number, combiner);
            log.claim(name, partition)
        });
        let claimed = try_join_all(claims).await;
        let claimed = claimed.map_err(|error| ShardExit::from(ExchangeError::from(error)))?;
        let claimed: Option<Vec<Arc<dyn Partition>>> = claimed.into_iter().collect();
        claimed.ok_or_else(|| ShardExit::Delayed(format!("the exchange `{name}` is not there yet")))
    }

    async fn journal(&self, position: StreamPosition) -> Result<Option<TimeJournal>, ShardExit> {
        let instance = &self.instance;
        let source = &instance.partitions.all[self.number];
        let kafka = kafka_input(&instance.job, source.input);
        let kafka = kafka.filter(|kafka| kafka.arrival == ArrivalTime::LogAppend);
        let (Some(kafka), Some(cluster)) = (kafka, instance.logs.cluster(source.input)) else {
            return Ok(None);
        };
        let delayed = |error: JournalError| match error {
            JournalError::Fenced(_) | JournalError::Write(AppendError::Fenced { .. }) => {
                ShardExit::Fenced(error.to_string())
            }
            JournalError::Write(_) => ShardExit::Delayed(error.to_string()),
            error if error.is_temporary() => ShardExit::Delayed(error.to_string()),
            error => ShardExit::Failed(error.to_string()),
        };
        let access = JournalAccess::Claim;
        let opened = journal_of(
            &instance.job,
            source,
            kafka,
            cluster,
            access,
            &instance.status,
        );
        let journal = opened.await.map_err(delayed)?;
        let StreamPosition { next, arrived } = position;
        let opened = journal.partition(source, next, arrived, &instance.status);
        opened.await.map_err(delayed)
    }

    /// Starts to read and to process.
    fn launch(&self, owned: OwnedStream) -> Result<StreamRun, ShardExit> {
        let instance = &self.instance;
        let OwnedStream {
            stream,
            exchange,
            journal,
            state,
            checkpoint,
            tables,
        } = owned;
        let source = &instance.partitions.all[self.number];
        let arrival = kafka_input(&instance.job, source.input).map(|kafka| kafka.arrival);
        let progress = ShardVote {
            reached: stream.arrived().max(stream.watermark()),
            watermark: stream.watermark(),
        };
        let (to_worker, work) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let permits = Arc::new(Semaphore::new(PERMITS));
        let feed = Feed {
            stream: self.number,
            partition: source.partition.clone(),
            next: stream.next(),
            until: None,
            growth: None,
            fetch_bytes: instance.options.fetch_bytes,
            silence: Some(instance.options.silence),
            journal,
            log_append_only: arrival == Some(ArrivalTime::LogAppend),
            punctuates: arrival != Some(ArrivalTime::Create),
            stopovers: exchange.stopovers(),
            ends_at_stopovers: tables.pending.is_some(),
            permits: permits.clone(),
            to: to_worker.clone(),
            clock: instance.context.clock.clone(),
            status: instance.status.clone(),
            stop: stopped,
        };
        let (out, outputs) = mpsc::unbounded_channel();
        let worker = Worker {
            number: 0,
            streams: vec![PartitionStream::Hub(Box::new(stream))],
            timer: instance.context.clock.clone(),
            out,
        };
        let thread = JobThread::spawn("highwater-worker", move || worker.run(work));
        thread.map_err(|error| ShardExit::Failed(error.to_string()))?;
        Ok(StreamRun {
            instance: instance.clone(),
            number: self.number,
            feed: FeedTask(tokio::spawn(feed.run())),
            stop,
            to_worker,
            outputs,
            permits,
            exchange,
            state,
            checkpoint,
            checkpointed_at: instance.context.clock.elapsed(),
            copying: None,
            storing: None,
            tables,
            progress,
        })
    }
}

struct SavedState {
    checkpoint: Option<StreamCheckpoint>,
    /// The number of the last checkpoint.
    number: u64,
}

/// The latest valid checkpoint.
async fn saved_state(
    state: &Arc<ShardState>,
    instance: &InstanceContext,
) -> Result<SavedState, ShardExit> {
    let (state, status) = (state.clone(), instance.status.clone());
    let read = blocking(move || {
        let numbers = state.list()?;
        let number = numbers.last().copied().unwrap_or(0);
        for number in numbers.iter().rev() {
            let read = unless_unavailable(state.read(*number))?;
            let decoded = read.and_then(|bytes| {
                StreamCheckpoint::decode(&bytes).map_err(|error| error.to_string())
            });
            match decoded {
                Ok(checkpoint) => {
                    let checkpoint = Some(checkpoint);
                    return Ok(SavedState {
                        checkpoint,
                        number: numbers.last().copied().unwrap_or(0),
                    });
                }
                Err(reason) => {
                    status.log(format!("checkpoint {number} cannot be used: {reason}"));
                    state.mark_damaged(*number);
                }
            }
        }
        match numbers.is_empty() {
            true => Ok(SavedState {
                checkpoint: None,
                number,
            }),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "none of them can be used, for the reasons in its log",
            )),
        }
    });
    let read = read
        .await
        .map_err(|error| ShardExit::Failed(error.to_string()))?;
    read.map_err(|error| store_failed(&error))
}
