//! Finds, counts, removes and replays the dead letters of one handler.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_env::Clock;
use highwater_log::Offset;

use crate::dead_letter::{
    DeadLetter, DeadLetterPartition, DeadLetterSink, FailedAttempt, event_id, is_letter, read,
};
use crate::scan::{scan, scan_while};
use crate::source::SourceError;
use crate::{Delivery, Event, EventId, Failure};

/// Selects dead letters. An empty filter selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// One of these; empty means any.
    pub ids: BTreeSet<EventId>,
    /// Dead-lettered at this time or later, in milliseconds since 1970.
    pub from_ms: Option<i64>,
    /// Dead-lettered before this time.
    pub until_ms: Option<i64>,
    /// The reason of an attempt contains this text, ignoring case.
    pub reason: Option<String>,
    pub key: Option<Vec<u8>>,
    /// Replayed at most this often so far.
    pub replays_max: Option<u32>,
}

/// A dead letter and its offset on the dead-letter hub.
#[derive(Clone, Debug)]
pub struct StoredDeadLetter {
    pub letter: DeadLetter,
    pub offset: Offset,
    /// When it was dead-lettered, in milliseconds since 1970.
    pub dead_ms: i64,
}

/// Matching dead letters, and whether there are more.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterPage {
    pub letters: Vec<StoredDeadLetter>,
    pub more: bool,
}

/// The outcome of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// It is no longer a dead letter.
    Handled,
    /// It still is one, with one more attempt and one more replay.
    Failed(String),
}

impl DeadLetterFilter {
    fn has_id(&self, id: &EventId) -> bool {
        self.ids.is_empty() || self.ids.contains(id)
    }

    fn fits(&self, stored: &StoredDeadLetter) -> bool {
        let letter = &stored.letter;
        let says = |text: &str| {
            let text = text.to_lowercase();
            let mut attempts = letter.attempts.iter();
            attempts.any(|attempt| attempt.reason.to_lowercase().contains(&text))
        };
        self.has_id(&letter.event.id())
            && self.from_ms.is_none_or(|from| stored.dead_ms >= from)
            && self.until_ms.is_none_or(|until| stored.dead_ms < until)
            && self.reason.as_deref().is_none_or(says)
            && self
                .key
                .as_deref()
                .is_none_or(|key| letter.event.key() == Some(key))
            && self.replays_max.is_none_or(|max| letter.replays <= max)
    }
}

impl DeadLetterPartition {
    /// Up to `max` matching letters from `from`, the oldest first.
    pub async fn find(
        &self,
        filter: &DeadLetterFilter,
        from: Offset,
        max: usize,
    ) -> Result<DeadLetterPage, SourceError> {
        let last = self.latest_offsets().await?;
        let mut found = DeadLetterPage::default();
        let from = match filter.ids.is_empty() {
            true => from,
            // Nothing before the first letter asked for matters.
            false => match filter.ids.iter().filter_map(|id| last.get(id)).min() {
                Some(first) => from.max(*first),
                None => return Ok(found),
            },
        };
        scan_while(&*self.0, from, |record| {
            // The key decides about most records, so that few are decoded.
            let wanted = |id: &EventId| last.get(id) == Some(&record.offset) && filter.has_id(id);
            if !event_id(record).is_some_and(|id| wanted(&id)) {
                return ControlFlow::Continue(());
            }
            let Some(letter) = read(record) else {
                return ControlFlow::Continue(());
            };
            let stored = StoredDeadLetter {
                letter,
                offset: record.offset,
                dead_ms: record.timestamp,
            };
            if !filter.fits(&stored) {
                return ControlFlow::Continue(());
            }
            if found.letters.len() == max {
                found.more = true;
                return ControlFlow::Break(());
            }
            found.letters.push(stored);
            match found.letters.len() == filter.ids.len() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
        .await?;
        Ok(found)
    }

    /// Number of dead letters.
    pub async fn count(&self) -> Result<usize, SourceError> {
        Ok(self.latest_offsets().await?.len())
    }

    /// The offset of each event's current letter.
    async fn latest_offsets(&self) -> Result<BTreeMap<EventId, Offset>, SourceError> {
        let mut last = BTreeMap::new();
        scan(&*self.0, Offset(0), |record| match event_id(record) {
            Some(id) if record.value.is_none() => {
                last.remove(&id);
            }
            Some(id) if is_letter(record) => {
                last.insert(id, record.offset);
            }
            _ => {}
        })
        .await?;
        Ok(last)
    }

    /// Passes a letter to the handler once more. It stays until the handler has accepted it, so a crash in between
    /// leaves it in place.
    pub async fn replay<W>(
        &self,
        stored: StoredDeadLetter,
        clock: &dyn Clock,
        handler: impl FnOnce(Delivery<Event>) -> W,
    ) -> Result<ReplayOutcome, String>
    where
        W: Future<Output = Result<(), Failure>>,
    {
        let mut letter = stored.letter;
        let number = letter.attempts.last().map_or(1, |last| last.number + 1);
        let at_ms = clock.unix_millis();
        let outcome = handler(Delivery {
            event: letter.event.clone(),
            value: Arc::new(letter.event.clone()),
            attempt: number,
        });
        let Err(failure) = outcome.await else {
            self.remove(&letter.event.id()).await?;
            return Ok(ReplayOutcome::Handled);
        };
        letter.replays += 1;
        let attempt = FailedAttempt::new(number, at_ms, failure.reason());
        attempt.note(&mut letter.attempts);
        self.put(&letter).await?;
        Ok(ReplayOutcome::Failed(failure.reason().into()))
    }
}
