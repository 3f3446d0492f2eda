//! One transactional id as a pure state machine.
//!
//! ```text
//!           add                  end, or timeout              every marker is written
//!  Empty ────────▶ Ongoing ─────────────────────────▶ Preparing ──────────────────────▶ Complete
//!                     ▲                                                                   │
//!                     └──────────────────────── add ──────────────────────────────────────┘
//! ```
//!
//! The functions return the next state and change nothing: a state takes effect when it is durable. From `Preparing`
//! on the outcome is decided.

use std::collections::BTreeSet;
use std::time::Duration;

use highwater_log::{
    Producer, TopicPartition, TransactionError, TransactionInfo, TransactionMarker,
    TransactionPhase,
};

/// The state of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    pub producer: Producer,
    /// The producer that the client may still use, if its epoch was raised: by a request whose response may have been
    /// lost, or by a timeout.
    pub previous: Option<Producer>,
    pub timeout: Duration,
    pub state: State,
    pub topic_partitions: BTreeSet<TopicPartition>,
    pub groups: BTreeSet<String>,
    /// Start of the transaction, in milliseconds since 1970.
    pub started_ms: i64,
    /// Time of the last change, in milliseconds since 1970.
    pub changed_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Empty,
    Ongoing,
    Preparing(TransactionMarker),
    Complete(TransactionMarker),
}

/// The result of [`Transaction::init`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InitDecision {
    /// A repeated request: the same producer.
    Known(Producer),
    Store(Transaction),
    /// A transaction is open: abort it with this state; the producer retries.
    Abort(Transaction),
    /// The epochs of this producer id are exhausted.
    NeedsId,
}

/// The result of [`Transaction::end_raising_epoch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndDecision {
    /// A repeated request: the producer of the next transaction.
    Known(Producer),
    Store(Transaction),
}

/// The last epoch of a client; the next one is reserved for fencing that client.
const EPOCH_LAST: i16 = i16::MAX - 1;

impl State {
    fn phase(self) -> TransactionPhase {
        match self {
            State::Empty => TransactionPhase::Empty,
            State::Ongoing => TransactionPhase::Ongoing,
            State::Preparing(TransactionMarker::Commit) => TransactionPhase::PrepareCommit,
            State::Preparing(TransactionMarker::Abort) => TransactionPhase::PrepareAbort,
            State::Complete(TransactionMarker::Commit) => TransactionPhase::CompleteCommit,
            State::Complete(TransactionMarker::Abort) => TransactionPhase::CompleteAbort,
        }
    }
}

impl Transaction {
    pub(super) fn info(&self, id: &str) -> TransactionInfo {
        let is_open = matches!(self.state, State::Ongoing | State::Preparing(_));
        TransactionInfo {
            id: id.to_owned(),
            producer: self.producer,
            timeout: self.timeout,
            phase: self.state.phase(),
            started_ms: is_open.then_some(self.started_ms),
            topic_partitions: self.topic_partitions.iter().cloned().collect(),
        }
    }

    pub(super) fn new(producer_id: i64, timeout: Duration, now_ms: i64) -> Transaction {
        Transaction {
            producer: Producer {
                id: producer_id,
                epoch: 0,
            },
            previous: None,
            timeout,
            state: State::Empty,
            topic_partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
            started_ms: 0,
            changed_ms: now_ms,
        }
    }

    /// `new_id` is an unused producer id, if the caller has one.
    pub(super) fn init(
        &self,
        current: Option<Producer>,
        timeout: Duration,
        new_id: Option<i64>,
        now_ms: i64,
    ) -> Result<InitDecision, TransactionError> {
        if let Some(current) = current
            && current != self.producer
            && Some(current) != self.previous
        {
            return Err(TransactionError::Fenced(current));
        }
        match self.state {
            State::Preparing(_) => Err(TransactionError::Concurrent),
            State::Ongoing => match current {
                Some(old) if old != self.producer => Err(TransactionError::Fenced(old)),
                _ => Ok(InitDecision::Abort(self.abort(current, now_ms))),
            },
            State::Empty | State::Complete(_) => match current {
                Some(old) if old != self.producer => Ok(InitDecision::Known(self.producer)),
                _ => Ok(self.raise_epoch(current, timeout, new_id, now_ms)),
            },
        }
    }

    fn raise_epoch(
        &self,
        previous: Option<Producer>,
        timeout: Duration,
        new_id: Option<i64>,
        now_ms: i64,
    ) -> InitDecision {
        let Producer { id, epoch } = self.producer;
        let producer = match new_id {
            _ if epoch < EPOCH_LAST => Producer {
                id,
                epoch: epoch + 1,
            },
            Some(id) => Producer { id, epoch: 0 },
            None => return InitDecision::NeedsId,
        };
        InitDecision::Store(Transaction {
            producer,
            previous,
            timeout,
            state: State::Empty,
            changed_ms: now_ms,
            ..self.clone()
        })
    }

    /// Aborts the open transaction without a request of its producer, and fences the producer. `previous` may continue
    /// with the new epoch.
    fn abort(&self, previous: Option<Producer>, now_ms: i64) -> Transaction {
        self.prepare_raised(TransactionMarker::Abort, previous, now_ms)
    }

    /// The decided state, with the next epoch, which the markers have as well.
    fn prepare_raised(
        &self,
        marker: TransactionMarker,
        previous: Option<Producer>,
        now_ms: i64,
    ) -> Transaction {
        let Producer { id, epoch } = self.producer;
        let epoch = epoch.saturating_add(1);
        Transaction {
            producer: Producer { id, epoch },
            previous,
            ..self.prepare(marker, now_ms)
        }
    }

    /// The state after the timeout of the transaction.
    pub(super) fn time_out(&self, now_ms: i64) -> Transaction {
        self.abort(Some(self.producer), now_ms)
    }

    fn prepare(&self, marker: TransactionMarker, now_ms: i64) -> Transaction {
        Transaction {
            state: State::Preparing(marker),
            changed_ms: now_ms,
            ..self.clone()
        }
    }

    /// Adds partitions and groups to the transaction; `None` if it has them.
    pub(super) fn add(
        &self,
        producer: Producer,
        topic_partitions: &[TopicPartition],
        groups: &[String],
        now_ms: i64,
    ) -> Result<Option<Transaction>, TransactionError> {
        self.check(producer)?;
        let mut next = self.clone();
        match self.state {
            State::Preparing(_) => return Err(TransactionError::Concurrent),
            State::Ongoing => {}
            State::Empty | State::Complete(_) => {
                next.state = State::Ongoing;
                next.previous = None;
                next.started_ms = now_ms;
            }
        }
        next.topic_partitions
            .extend(topic_partitions.iter().cloned());
        next.groups.extend(groups.iter().cloned());
        if next == *self {
            return Ok(None);
        }
        next.changed_ms = now_ms;
        Ok(Some(next))
    }

    /// The decided state; `None` if it ended that way before.
    pub(super) fn end(
        &self,
        producer: Producer,
        marker: TransactionMarker,
        now_ms: i64,
    ) -> Result<Option<Transaction>, TransactionError> {
        self.check(producer)?;
        match self.state {
            State::Ongoing => Ok(Some(self.prepare(marker, now_ms))),
            State::Complete(done) if done == marker => Ok(None),
            State::Preparing(doing) if doing == marker => Err(TransactionError::Concurrent),
            State::Empty => Err(TransactionError::InvalidState("no transaction is open")),
            State::Complete(TransactionMarker::Commit)
            | State::Preparing(TransactionMarker::Commit) => {
                Err(TransactionError::InvalidState("it was committed"))
            }
            State::Complete(TransactionMarker::Abort)
            | State::Preparing(TransactionMarker::Abort) => {
                Err(TransactionError::InvalidState("it was aborted"))
            }
        }
    }

    /// The decided state with the next epoch. An abort needs no open transaction, because a client whose first batch
    /// failed cannot know whether it began one.
    pub(super) fn end_raising_epoch(
        &self,
        producer: Producer,
        marker: TransactionMarker,
        now_ms: i64,
    ) -> Result<EndDecision, TransactionError> {
        let is_repeat = self.previous == Some(producer);
        if !is_repeat {
            self.check(producer)?;
        }
        let raised = || {
            let next = self.prepare_raised(marker, Some(producer), now_ms);
            Ok(EndDecision::Store(next))
        };
        match self.state {
            State::Preparing(doing) if doing == marker => Err(TransactionError::Concurrent),
            State::Preparing(_) => Err(TransactionError::InvalidState("it ends the other way")),
            State::Complete(done) if is_repeat => match done == marker {
                true => Ok(EndDecision::Known(self.producer)),
                false => Err(TransactionError::InvalidState("it ended the other way")),
            },
            State::Empty | State::Ongoing if is_repeat => Err(TransactionError::Fenced(producer)),
            State::Ongoing => raised(),
            State::Empty | State::Complete(_) if marker == TransactionMarker::Abort => raised(),
            State::Empty | State::Complete(_) => {
                Err(TransactionError::InvalidState("no transaction is open"))
            }
        }
    }

    /// Whether the epochs of the producer id are exhausted: not even a marker can raise it.
    pub(super) fn needs_id(&self) -> bool {
        self.producer.epoch == i16::MAX
    }

    /// The state after every marker is written. `new_id` is a producer id for the next transaction, if it
    /// [needs](Self::needs_id) one.
    pub(super) fn complete(
        &self,
        marker: TransactionMarker,
        new_id: Option<i64>,
        now_ms: i64,
    ) -> Transaction {
        let producer = new_id.map_or(self.producer, |id| Producer { id, epoch: 0 });
        Transaction {
            producer,
            state: State::Complete(marker),
            topic_partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
            changed_ms: now_ms,
            ..self.clone()
        }
    }

    pub(super) fn check(&self, producer: Producer) -> Result<(), TransactionError> {
        match self.producer == producer {
            true => Ok(()),
            false if self.producer.id == producer.id => Err(TransactionError::Fenced(producer)),
            false if self.previous == Some(producer) => Err(TransactionError::Fenced(producer)),
            false => Err(TransactionError::UnknownProducer(producer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_log::HubName;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn topic_partition(partition: u32) -> TopicPartition {
        let hub = HubName::new("toll").unwrap();
        TopicPartition { hub, partition }
    }

    fn empty() -> Transaction {
        Transaction::new(7, TIMEOUT, 0)
    }

    fn ongoing() -> Transaction {
        let begun = empty().add(empty().producer, &[topic_partition(0)], &[], 5);
        begun.unwrap().unwrap()
    }

    fn epoch(epoch: i16) -> Producer {
        Producer { id: 7, epoch }
    }

    fn raised(init: InitDecision) -> Transaction {
        match init {
            InitDecision::Store(next) => next,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_producer_that_introduces_itself_again_gets_the_next_epoch() {
        let next = raised(empty().init(None, TIMEOUT, None, 1).unwrap());
        assert_eq!((next.producer, next.previous), (epoch(1), None));
    }

    #[test]
    fn a_repeated_introduction_gets_the_same_answer() {
        let next = raised(empty().init(Some(epoch(0)), TIMEOUT, None, 1).unwrap());
        assert_eq!(next.producer, epoch(1));
        let again = next.init(Some(epoch(0)), TIMEOUT, None, 2);
        assert_eq!(again, Ok(InitDecision::Known(epoch(1))));
    }

    #[test]
    fn a_repeat_that_comes_after_work_has_begun_is_fenced() {
        let next = raised(empty().init(Some(epoch(0)), TIMEOUT, None, 1).unwrap());
        let begun = next
            .add(epoch(1), &[topic_partition(0)], &[], 2)
            .unwrap()
            .unwrap();
        let late = begun.init(Some(epoch(0)), TIMEOUT, None, 3);
        assert_eq!(late, Err(TransactionError::Fenced(epoch(0))));
    }

    #[test]
    fn the_open_transaction_of_an_earlier_holder_is_aborted_and_the_holder_fenced() {
        let Ok(InitDecision::Abort(next)) = ongoing().init(None, TIMEOUT, None, 9) else {
            panic!("it is open");
        };
        assert_eq!(next.state, State::Preparing(TransactionMarker::Abort));
        assert_eq!(next.producer, epoch(1));
        let fenced = Err(TransactionError::Fenced(epoch(0)));
        assert_eq!(next.end(epoch(0), TransactionMarker::Commit, 9), fenced);
        let complete = next.complete(TransactionMarker::Abort, None, 10);
        let old = complete.init(Some(epoch(0)), TIMEOUT, None, 11);
        assert_eq!(old, Err(TransactionError::Fenced(epoch(0))));
    }

    #[test]
    fn a_producer_whose_transaction_took_too_long_is_fenced_but_may_come_back() {
        let next = ongoing().time_out(9);
        assert_eq!(next.producer, epoch(1));
        let complete = next.complete(TransactionMarker::Abort, None, 10);
        let late = complete.add(epoch(0), &[topic_partition(0)], &[], 11);
        assert_eq!(late, Err(TransactionError::Fenced(epoch(0))));
        let back = complete.init(Some(epoch(0)), TIMEOUT, None, 12);
        assert_eq!(back, Ok(InitDecision::Known(epoch(1))));
    }

    #[test]
    fn when_the_epochs_are_used_up_there_is_a_new_producer_id() {
        let mut last = empty();
        last.producer.epoch = EPOCH_LAST;
        let now = last.init(Some(last.producer), TIMEOUT, None, 1);
        assert_eq!(now, Ok(InitDecision::NeedsId));
        let next = raised(last.init(Some(last.producer), TIMEOUT, Some(8), 1).unwrap());
        assert_eq!(next.producer, Producer { id: 8, epoch: 0 });
        let old = next.check(last.producer);
        assert_eq!(old, Err(TransactionError::Fenced(last.producer)));
        let mut open = ongoing();
        open.producer.epoch = EPOCH_LAST;
        let fenced = open.time_out(2);
        assert_eq!(fenced.producer.epoch, i16::MAX);
        let complete = fenced.complete(TransactionMarker::Abort, None, 3);
        assert_eq!(
            complete.init(None, TIMEOUT, None, 4),
            Ok(InitDecision::NeedsId)
        );
    }

    #[test]
    fn adding_a_partition_twice_changes_nothing() {
        assert_eq!(
            ongoing().add(epoch(0), &[topic_partition(0)], &[], 9),
            Ok(None)
        );
        let more = ongoing().add(epoch(0), &[topic_partition(1)], &["g".into()], 9);
        let more = more.unwrap().unwrap();
        assert_eq!((more.topic_partitions.len(), more.groups.len()), (2, 1));
        assert_eq!(more.started_ms, 5, "the time runs from the first");
    }

    #[test]
    fn ending_twice_gives_the_same_answer_and_the_other_way_is_refused() {
        let Ok(Some(next)) = ongoing().end(epoch(0), TransactionMarker::Commit, 9) else {
            panic!("it is open");
        };
        let again = next.end(epoch(0), TransactionMarker::Commit, 9);
        assert_eq!(again, Err(TransactionError::Concurrent));
        assert_eq!(
            next.add(epoch(0), &[], &[], 9),
            Err(TransactionError::Concurrent)
        );
        let intro = next.init(None, TIMEOUT, None, 9);
        assert_eq!(intro, Err(TransactionError::Concurrent));
        let done = next.complete(TransactionMarker::Commit, None, 10);
        assert_eq!(done.end(epoch(0), TransactionMarker::Commit, 11), Ok(None));
        for state in [done, next, empty()] {
            let other = state.end(epoch(0), TransactionMarker::Abort, 12);
            assert!(matches!(other, Err(TransactionError::InvalidState(_))));
        }
    }

    #[test]
    fn another_producer_is_not_known() {
        let other = Producer { id: 8, epoch: 0 };
        let unknown = Err(TransactionError::UnknownProducer(other));
        assert_eq!(empty().add(other, &[], &[], 1), unknown);
    }

    fn ended(decision: Result<EndDecision, TransactionError>) -> Transaction {
        match decision {
            Ok(EndDecision::Store(next)) => next,
            other => panic!("{other:?}"),
        }
    }

    // proves K3
    #[test]
    fn an_end_that_raises_the_epoch_cannot_touch_the_next_transaction() {
        let commit = TransactionMarker::Commit;
        let next = ended(ongoing().end_raising_epoch(epoch(0), commit, 9));
        assert_eq!(
            (next.producer, next.state),
            (epoch(1), State::Preparing(commit))
        );
        let busy = next.end_raising_epoch(epoch(0), commit, 9);
        assert_eq!(busy, Err(TransactionError::Concurrent));
        let done = next.complete(commit, None, 10);
        let again = done.end_raising_epoch(epoch(0), commit, 11);
        assert_eq!(again, Ok(EndDecision::Known(epoch(1))));
        let other = done.end_raising_epoch(epoch(0), TransactionMarker::Abort, 11);
        assert!(matches!(other, Err(TransactionError::InvalidState(_))));
        let later = done.add(epoch(1), &[topic_partition(1)], &[], 12);
        let late = later
            .unwrap()
            .unwrap()
            .end_raising_epoch(epoch(0), commit, 13);
        assert_eq!(late, Err(TransactionError::Fenced(epoch(0))));
    }

    #[test]
    fn an_abort_without_a_transaction_raises_the_epoch_and_a_commit_is_refused() {
        let abort = TransactionMarker::Abort;
        let next = ended(empty().end_raising_epoch(epoch(0), abort, 1));
        let done = next.complete(abort, None, 2);
        assert_eq!(
            (done.producer, done.state),
            (epoch(1), State::Complete(abort))
        );
        let next = ended(done.end_raising_epoch(epoch(1), abort, 3));
        assert_eq!(next.producer, epoch(2));
        for state in [empty(), done] {
            let refused = state.end_raising_epoch(state.producer, TransactionMarker::Commit, 4);
            assert!(matches!(refused, Err(TransactionError::InvalidState(_))));
        }
    }

    #[test]
    fn a_producer_whose_transaction_timed_out_learns_its_epoch_by_aborting() {
        let done = ongoing()
            .time_out(9)
            .complete(TransactionMarker::Abort, None, 10);
        let aborted = done.end_raising_epoch(epoch(0), TransactionMarker::Abort, 11);
        assert_eq!(aborted, Ok(EndDecision::Known(epoch(1))));
        let committed = done.end_raising_epoch(epoch(0), TransactionMarker::Commit, 11);
        assert!(matches!(committed, Err(TransactionError::InvalidState(_))));
    }

    #[test]
    fn the_last_epoch_ends_with_a_new_producer_id() {
        let mut open = ongoing();
        open.producer.epoch = EPOCH_LAST;
        let next = ended(open.end_raising_epoch(open.producer, TransactionMarker::Commit, 1));
        assert!(next.needs_id());
        let done = next.complete(TransactionMarker::Commit, Some(8), 2);
        let new = Producer { id: 8, epoch: 0 };
        let again = done.end_raising_epoch(open.producer, TransactionMarker::Commit, 3);
        assert_eq!(again, Ok(EndDecision::Known(new)));
        let late = done.add(open.producer, &[], &[], 4);
        assert_eq!(late, Err(TransactionError::Fenced(open.producer)));
    }
}
