//! Property test: for any input, the bounded state answers as the complete history would.

use proptest::collection::vec;
use proptest::prelude::*;

use super::tests::{Log, batch, producer};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Send {
        id: i64,
        epoch: i16,
        sequence: i32,
        count: i32,
        transactional: bool,
    },
    /// The next sequence number, the most frequent case.
    Next {
        id: i64,
        count: i32,
        transactional: bool,
    },
    End {
        id: i64,
        epoch: i16,
        marker: TransactionMarker,
    },
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    let marker =
        || proptest::sample::select(vec![TransactionMarker::Abort, TransactionMarker::Commit]);
    let send = (1..4i64, 0..3i16, 0..12, 1..3, any::<bool>());
    prop_oneof![
        3 => send.prop_map(|(id, epoch, sequence, count, transactional)| Step::Send { id, epoch, sequence, count, transactional }),
        5 => (1..4i64, 1..3, any::<bool>()).prop_map(|(id, count, transactional)| Step::Next { id, count, transactional }),
        3 => (1..4i64, 0..3i16, marker()).prop_map(|(id, epoch, marker)| Step::End { id, epoch, marker }),
        1 => Just(Step::Restart),
    ]
}

/// The complete history, from which every answer is computed.
#[derive(Default)]
struct History(Vec<Event>);

/// Producer, first offset, and its marker.
type Transaction = (i64, i64, Option<(i64, TransactionMarker)>);

#[derive(Clone, Copy)]
struct Event {
    producer: Producer,
    sequence: i32,
    count: i32,
    offset: i64,
    transactional: bool,
    marker: Option<TransactionMarker>,
}

impl History {
    fn of(&self, id: i64) -> impl DoubleEndedIterator<Item = &Event> {
        self.0.iter().filter(move |event| event.producer.id == id)
    }

    fn epoch(&self, id: i64) -> Option<i16> {
        self.of(id).map(|event| event.producer.epoch).max()
    }

    /// Batches of the current epoch, the last first.
    fn batches(&self, id: i64) -> Vec<&Event> {
        let current = self.epoch(id);
        let batches = self.of(id).rev().filter(|event| event.marker.is_none());
        batches
            .filter(|event| Some(event.producer.epoch) == current)
            .collect()
    }

    fn next(&self, id: i64) -> Option<i32> {
        match self.batches(id).first() {
            Some(last) => Some(last.sequence + last.count),
            None => self
                .of(id)
                .any(|event| Some(event.producer.epoch) != self.epoch(id))
                .then_some(0),
        }
    }

    /// In the order of their starts.
    fn transactions(&self) -> Vec<Transaction> {
        let mut all: Vec<Transaction> = Vec::new();
        for event in &self.0 {
            let id = event.producer.id;
            let open = all
                .iter_mut()
                .find(|(of, _, end)| *of == id && end.is_none());
            match (open, event.marker) {
                (Some(open), Some(marker)) => open.2 = Some((event.offset, marker)),
                (None, None) if event.transactional => all.push((id, event.offset, None)),
                _ => {}
            }
        }
        all
    }

    fn is_open(&self, id: i64) -> bool {
        self.transactions()
            .iter()
            .any(|(of, _, end)| *of == id && end.is_none())
    }

    fn stable(&self, durable: i64) -> i64 {
        let unstable = self
            .transactions()
            .into_iter()
            .filter(|(_, _, end)| end.is_none_or(|(at, _)| at >= durable));
        unstable
            .map(|(_, first, _)| first)
            .min()
            .unwrap_or(durable)
            .min(durable)
    }

    fn aborted(&self, from: i64, to: i64) -> Vec<(i64, i64)> {
        let mut all = self.transactions();
        all.retain(|(_, first, end)| matches!(end, Some((last, TransactionMarker::Abort)) if *last >= from && *first < to));
        all.sort_by_key(|(_, _, end)| end.map(|(last, _)| last));
        all.into_iter().map(|(id, first, _)| (id, first)).collect()
    }

    fn expected(&self, event: &Event) -> &'static str {
        let id = event.producer.id;
        match self.epoch(id) {
            None => return "new",
            Some(epoch) if event.producer.epoch < epoch => return "fenced",
            Some(_) if self.is_open(id) && !event.transactional => return "outside",
            Some(epoch) if event.producer.epoch > epoch => {
                return if event.sequence == 0 { "new" } else { "gap" };
            }
            Some(_) => {}
        }
        let batches = self.batches(id);
        let same = |sent: &&Event| (sent.sequence, sent.count) == (event.sequence, event.count);
        let remembered = &batches[..batches.len().min(5)];
        let first = batches.last().map_or(0, |sent| sent.sequence);
        let oldest = remembered.last().map_or(0, |sent| sent.sequence);
        match self.next(id) {
            _ if remembered.iter().any(same) => "repeat",
            None => "new",
            Some(next) if next == event.sequence => "new",
            _ if first <= event.sequence && event.sequence + event.count <= oldest => "late",
            _ => "gap",
        }
    }
}

fn kind(verdict: &Result<SequenceCheck, AppendError>) -> &'static str {
    match verdict {
        Ok(SequenceCheck::New) => "new",
        Ok(SequenceCheck::Duplicate { .. }) => "repeat",
        Err(AppendError::OutOfSequence { .. }) => "gap",
        Err(AppendError::DuplicateTooOld { .. }) => "late",
        Err(AppendError::Fenced { .. }) => "fenced",
        Err(AppendError::Malformed(BatchError::OutsideTransaction)) => "outside",
        Err(other) => panic!("{other}"),
    }
}

proptest! {
    #[test]
    fn the_bounded_state_answers_like_the_whole_history(steps in vec(any_step(), 1..60), behind in 0..5i64) {
        let (mut log, mut history) = (Log::new(), History::default());
        let mut restarted = 0;
        for step in steps {
            let offset = log.producers.end().0;
            let (event, sent) = match step {
                Step::Send { id, epoch, sequence, count, transactional } => {
                    let event = Event { producer: producer(id, epoch), sequence, count, offset, transactional, marker: None };
                    (event, batch(event.producer, sequence, count, transactional))
                }
                Step::Next { id, count, transactional } => {
                    let p = producer(id, history.epoch(id).unwrap_or(0));
                    let sequence = history.next(id).unwrap_or(0);
                    let event = Event { producer: p, sequence, count, offset, transactional, marker: None };
                    (event, batch(p, sequence, count, transactional))
                }
                Step::End { id, epoch, marker } => {
                    let p = producer(id, epoch);
                    let allowed = log.end(p, marker).is_ok();
                    let current = history.epoch(id);
                    let expected = current.is_none_or(|current| epoch > current || epoch == current && history.is_open(id));
                    prop_assert_eq!(allowed, expected);
                    if allowed {
                        history.0.push(Event { producer: p, sequence: -1, count: 1, offset, transactional: true, marker: Some(marker) });
                    }
                    continue;
                }
                Step::Restart => {
                    let end = log.producers.end();
                    log.producers.advance_durable(end);
                    let restored = ProducerStates::restore(&log.producers.snapshot()).unwrap();
                    prop_assert_eq!(&restored, &log.producers);
                    log.producers = restored;
                    restarted = end.0;
                    continue;
                }
            };
            let verdict = log.check(&sent);
            prop_assert_eq!(kind(&verdict), history.expected(&event), "{:?}", verdict);
            if verdict == Ok(SequenceCheck::New) {
                log.put(sent);
                history.0.push(event);
            }
        }
        let end = log.producers.end().0;
        for from in 0..end {
            for to in [from + 1, from + 3, end] {
                prop_assert_eq!(log.aborted(from, to), history.aborted(from, to), "{}..{}", from, to);
            }
        }
        // After a restart the batches read back are durable.
        for durable in [restarted.max(end - behind), end] {
            prop_assert_eq!(log.producers.last_stable_offset(Offset(durable)).0, history.stable(durable));
        }
    }
}
