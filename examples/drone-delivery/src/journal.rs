//! The durable state of a service: every change is an event in a journal, and the state is the fold of its events.
//!
//! The journal is a hub with one partition, used as a library, so an event is on disk before it is visible, and a
//! `kill -9` loses nothing that was answered. Changes take effect in memory in journal order; a request that sees a
//! change (a repetition or a read) is answered only when the change is durable.

use std::path::Path;
use std::sync::Arc;

use highwater_env::{Clock, RealDisk};
use highwater_hub::{Hub, OpenError, Options};
use highwater_log::batch::{Batches, Decompressor, NewRecord};
use highwater_log::{HubName, HubSettings, HubSpec, Isolation, Log, Offset, Partition};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

const JOURNAL: &str = "journal";
const READ_BYTES: usize = 1 << 20;
const BATCH_BYTES_MAX: usize = 16 << 20;

/// The state of a service.
pub trait State: Default + Send + 'static {
    type Event: Serialize + DeserializeOwned + Send;

    fn apply(&mut self, event: &Self::Event);
}

/// Why a journal could not be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the journal cannot be made: {0}")]
    Make(#[from] highwater_log::AdminError),
    #[error("the journal cannot be read: {0}")]
    Read(#[from] highwater_log::ReadError),
    #[error("the journal holds a batch that cannot be unpacked: {0}")]
    Batch(#[from] highwater_log::batch::BatchError),
    #[error("the journal is broken off: {0}")]
    Broken(#[from] highwater_log::batch::CorruptBatch),
    #[error("event {offset} of the journal is not one of this service: {error}")]
    Event {
        offset: Offset,
        error: serde_json::Error,
    },
}

/// A state and its journal.
pub struct Store<S: State> {
    hub: Hub,
    journal: Arc<dyn Partition>,
    inner: Mutex<Inner<S>>,
    /// Number of durable changes.
    durable: Arc<watch::Sender<u64>>,
}

struct Inner<S> {
    state: S,
    /// Number of changes made.
    changes: u64,
}

impl<S: State> Store<S> {
    pub async fn open(folder: &Path, clock: Arc<dyn Clock>) -> Result<Store<S>, JournalError> {
        let (hub, journal) = open(folder, clock).await?;
        let mut state = S::default();
        let mut next = Offset(0);
        while let Some((events, after)) = read::<S::Event>(&*journal, next).await? {
            events.iter().for_each(|event| state.apply(event));
            next = after;
        }
        Ok(Store {
            hub,
            journal,
            inner: Mutex::new(Inner { state, changes: 0 }),
            durable: Arc::new(watch::Sender::new(0)),
        })
    }

    /// Decides on the current state and applies the resulting event. Completes when the event, and all events the
    /// decision could have seen, are durable.
    pub async fn change<R>(&self, decide: impl FnOnce(&S) -> (Option<S::Event>, R)) -> R {
        let (answer, changes) = {
            let mut inner = self.inner.lock();
            let (event, answer) = decide(&inner.state);
            if let Some(event) = event {
                inner.state.apply(&event);
                inner.changes += 1;
                self.append(&event, inner.changes);
            }
            (answer, inner.changes)
        };
        let mut durable = self.durable.subscribe();
        // The sender lives as long as the store.
        let _ = durable.wait_for(|durable| *durable >= changes).await;
        answer
    }

    pub async fn read<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        self.change(|state| (None, look(state))).await
    }

    /// Enqueued at the call. Continues when the caller is dropped, because others wait for the same change.
    fn append(&self, event: &S::Event, number: u64) {
        let value = serde_json::to_vec(event).expect("events have text keys and no odd numbers");
        let record = NewRecord {
            key: None,
            value: Some(&value),
            headers: &[],
        };
        let appending = self.journal.append_records(&[record]);
        let durable = self.durable.clone();
        tokio::spawn(async move {
            if let Err(error) = appending.await {
                // The state in memory is ahead of the disk; only a restart can repair that.
                eprintln!("the journal cannot be written, so this service ends: {error}");
                std::process::exit(1);
            }
            durable.send_if_modified(|durable| {
                let more = number > *durable;
                *durable = number.max(*durable);
                more
            });
        });
    }

    /// The journal itself, for the publisher.
    pub fn journal(&self) -> &Arc<dyn Partition> {
        &self.journal
    }

    /// Closes the files cleanly. Not needed for safety, only for a quick start.
    pub fn stop(&self) {
        self.hub.stop();
    }
}

/// All events of a journal that no service has open, in order.
pub async fn events<E: DeserializeOwned>(
    folder: &Path,
    clock: Arc<dyn Clock>,
) -> Result<Vec<E>, JournalError> {
    let (hub, journal) = open(folder, clock).await?;
    let mut all = Vec::new();
    let mut next = Offset(0);
    while let Some((events, after)) = read(&*journal, next).await? {
        all.extend(events);
        next = after;
    }
    hub.stop();
    Ok(all)
}

/// Events from `from` and the next offset; `None` at the end.
pub async fn read<E: DeserializeOwned>(
    journal: &dyn Partition,
    from: Offset,
) -> Result<Option<(Vec<E>, Offset)>, JournalError> {
    let fetched = journal.read(from, READ_BYTES, Isolation::Committed).await?;
    let mut unpacker = Decompressor::new(BATCH_BYTES_MAX);
    let mut events = Vec::new();
    let mut next = from;
    for piece in &fetched.pieces {
        for batch in Batches::new(piece) {
            for record in batch?.records(&mut unpacker)? {
                let record = record?;
                if record.offset < from {
                    continue;
                }
                let event = serde_json::from_slice(record.value.unwrap_or_default());
                let offset = record.offset;
                events.push(event.map_err(|error| JournalError::Event { offset, error })?);
                next = Offset(offset.0 + 1);
            }
        }
    }
    Ok((next > from).then_some((events, next)))
}

async fn open(
    folder: &Path,
    clock: Arc<dyn Clock>,
) -> Result<(Hub, Arc<dyn Partition>), JournalError> {
    let options = Options {
        committers: 1,
        readers: 1,
        tail_bytes: 1 << 20,
        ..Options::default()
    };
    let hub = Hub::open(Arc::new(RealDisk), folder, options, clock, &|_| {})?;
    if hub.hub(JOURNAL).is_none() {
        let spec = HubSpec {
            name: HubName::new(JOURNAL).expect("letters alone"),
            partitions: 1,
            settings: HubSettings {
                retention: None,
                ..HubSettings::default()
            },
        };
        hub.create(spec).await?;
    }
    let journal = hub.partition(JOURNAL, 0).expect("it has one partition");
    Ok((hub, journal))
}

#[cfg(test)]
mod tests {
    use highwater_env::RealClock;

    use super::*;

    #[derive(Default)]
    struct Sum(u64);

    impl State for Sum {
        type Event = u64;

        fn apply(&mut self, event: &u64) {
            self.0 += event;
        }
    }

    async fn store(folder: &Path) -> Store<Sum> {
        Store::open(folder, Arc::new(RealClock::new()))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn a_state_is_the_sum_of_its_events_after_a_new_start_too() {
        let folder = tempfile::tempdir().unwrap();
        let first = store(folder.path()).await;
        for event in 1..=10 {
            first.change(|_| (Some(event), ())).await;
        }
        assert_eq!(first.read(|sum| sum.0).await, 55);
        first.stop();
        drop(first);
        let second = store(folder.path()).await;
        assert_eq!(second.read(|sum| sum.0).await, 55);
        second.stop();
        drop(second);
        let all: Vec<u64> = events(folder.path(), Arc::new(RealClock::new()))
            .await
            .unwrap();
        assert_eq!(all, (1..=10).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_read_that_sees_a_change_is_answered_when_it_is_durable() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path()).await;
        let changing = store.change(|_| (Some(7), ()));
        let reading = async {
            let seen = store.read(|sum| sum.0).await;
            (seen, store.journal().bounds().end)
        };
        // The change is polled first: its event is in memory, and not yet durable, when the reader looks.
        let ((), seen) = tokio::join!(biased; changing, reading);
        assert_eq!(seen, (7, Offset(1)));
    }
}
