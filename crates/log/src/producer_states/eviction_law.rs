//! Property test: a full partition forgets and refuses producers as a plain list of all of them says, and no producer
//! in time to repeat a batch is forgotten.

use proptest::collection::vec;
use proptest::prelude::*;

use super::tests::{Log, batch, producer, topic_partition};
use super::*;
use crate::batch::Batch;

const MAX: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// The next batch of a producer, or the last one again.
    Send {
        id: i64,
        again: bool,
        transactional: bool,
    },
    End(i64),
    /// A batch is rejected for want of space.
    Reject(i64),
    Wait(i64),
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    let send = (1..8i64, any::<bool>(), proptest::bool::weighted(0.2));
    prop_oneof![
        8 => send.prop_map(|(id, again, transactional)| Step::Send { id, again, transactional }),
        2 => (1..8i64).prop_map(Step::End),
        1 => (1..8i64).prop_map(Step::Reject),
        3 => (0..RETRY_TIME_MS).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// A known producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    id: i64,
    last_time: EnqueueTime,
    is_open: bool,
}

/// The known producers, found by looking at all of them.
#[derive(Clone, Default)]
struct Oracle(Vec<Known>);

impl Oracle {
    fn find(&self, id: i64) -> Option<&Known> {
        self.0.iter().find(|known| known.id == id)
    }

    fn oldest_idle(&self, newest: i64) -> Option<Known> {
        let idle = self
            .0
            .iter()
            .filter(|known| !known.is_open && known.id != newest);
        idle.min_by_key(|known| (known.last_time, known.id))
            .copied()
    }

    fn admits(&self, id: i64, now: EnqueueTime) -> bool {
        let oldest = self.oldest_idle(id);
        let is_silent = oldest.is_some_and(|oldest| now.0 - oldest.last_time.0 >= RETRY_TIME_MS);
        self.find(id).is_some() || self.0.len() < MAX || is_silent
    }

    fn note(&mut self, newest: Known) {
        self.0.retain(|known| known.id != newest.id);
        self.0.push(newest);
        if self.0.len() > MAX
            && let Some(oldest) = self.oldest_idle(newest.id)
        {
            self.0.retain(|known| known.id != oldest.id);
        }
    }

    fn ids(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self.0.iter().map(|known| known.id).collect();
        ids.sort_unstable();
        ids
    }
}

fn limited(producers: ProducerStates) -> ProducerStates {
    ProducerStates {
        producers_max: MAX,
        ..producers
    }
}

/// A batch of the log, and when it was appended.
type Appended = (Batch, EnqueueTime);

/// The state of a partition that is rebuilt from its log.
fn replayed(log: &[Appended]) -> ProducerStates {
    let mut producers = limited(ProducerStates::default());
    for (batch, time) in log {
        let marker = batch.as_marker().unwrap();
        producers.apply(batch.header(), *time, marker);
    }
    producers
}

struct Run {
    log: Log,
    oracle: Oracle,
    appended: Vec<Appended>,
    /// The next sequence number of each producer.
    next: BTreeMap<i64, i32>,
    /// A rejected batch is in no log, so a replay does not know it.
    has_rejected: bool,
}

impl Run {
    fn append(&mut self, mut batch: Batch, known: Known) {
        batch.stamp(self.log.producers.end(), known.last_time);
        self.appended.push((batch.clone(), known.last_time));
        self.log.put(batch);
        self.oracle.note(known);
    }

    fn send(&mut self, id: i64, again: bool, transactional: bool) -> Result<(), TestCaseError> {
        let now = self.log.now();
        let next = self.next.get(&id).copied().unwrap_or(0);
        let sequence = if again { (next - 1).max(0) } else { next };
        let sent = batch(producer(id, 0), sequence, 1, transactional);
        let known = self.oracle.find(id).copied();
        let verdict = self.log.check(&sent);
        if !self.oracle.admits(id, now) {
            prop_assert!(
                matches!(verdict, Err(AppendError::Busy { .. })),
                "{:?}",
                verdict
            );
            return Ok(());
        }
        prop_assert!(
            !matches!(verdict, Err(AppendError::Busy { .. })),
            "{:?}",
            verdict
        );
        if verdict != Ok(SequenceCheck::New) {
            return Ok(());
        }
        let is_same = |(batch, _): &&Appended| {
            batch.header().producer() == sent.header().producer()
                && batch.header().base_sequence() == sequence
        };
        if let Some((_, time)) = self.appended.iter().rev().find(is_same) {
            // Appended twice: only after its client gave up.
            prop_assert!(now.0 - time.0 >= RETRY_TIME_MS);
        }
        let is_open = transactional || known.is_some_and(|known| known.is_open);
        self.next.insert(id, sequence + 1);
        self.append(
            sent,
            Known {
                id,
                last_time: now,
                is_open,
            },
        );
        Ok(())
    }

    fn end(&mut self, id: i64) -> Result<(), TestCaseError> {
        let now = self.log.now();
        let marker = TransactionMarker::Commit;
        let checked = self
            .log
            .producers
            .check_marker(producer(id, 0), now, &topic_partition());
        let is_open = self.oracle.find(id).map(|known| known.is_open);
        let expected = is_open.unwrap_or(true) && self.oracle.admits(id, now);
        prop_assert_eq!(checked.is_ok(), expected, "{:?}", checked);
        if expected {
            let known = Known {
                id,
                last_time: now,
                is_open: false,
            };
            self.append(Batch::marker(producer(id, 0), marker), known);
        }
        Ok(())
    }

    fn reject(&mut self, id: i64) {
        let now = self.log.now();
        let next = self.next.get(&id).copied().unwrap_or(0);
        let sent = batch(producer(id, 0), next, 1, false);
        self.log.producers.expect_sequence(sent.header(), now);
        if self.oracle.find(id).is_none() && self.oracle.admits(id, now) {
            self.has_rejected = true;
            self.oracle.note(Known {
                id,
                last_time: now,
                is_open: false,
            });
        }
    }
}

proptest! {
    // proves G2
    #[test]
    fn a_full_partition_forgets_the_producer_that_has_been_silent_longest(steps in vec(any_step(), 1..120)) {
        let mut run = Run {
            log: Log::new(),
            oracle: Oracle::default(),
            appended: Vec::new(),
            next: BTreeMap::new(),
            has_rejected: false,
        };
        run.log.producers.producers_max = MAX;
        for step in steps {
            match step {
                Step::Send { id, again, transactional } => run.send(id, again, transactional)?,
                Step::End(id) => run.end(id)?,
                Step::Reject(id) => run.reject(id),
                Step::Wait(millis) => run.log.wait(millis),
                Step::Restart => {
                    let end = run.log.producers.end();
                    run.log.producers.advance_durable(end);
                    let restored = ProducerStates::restore(&run.log.producers.snapshot()).unwrap();
                    prop_assert_eq!(&limited(restored), &run.log.producers);
                }
            }
            let known: Vec<i64> = run.log.producers.entries.keys().copied().collect();
            prop_assert_eq!(known, run.oracle.ids());
            prop_assert!(run.log.producers.len() <= MAX);
        }
        if !run.has_rejected {
            let mut replayed = replayed(&run.appended);
            let end = replayed.end();
            replayed.advance_durable(end);
            run.log.producers.advance_durable(end);
            prop_assert_eq!(&replayed, &run.log.producers);
        }
    }
}
