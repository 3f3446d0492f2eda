//! Checkpoints as the positions of a consumer group. proves C2

use std::future::pending;
use std::sync::Arc;

use crate::common::{Letters, TokioClock, append, partition, paused};
use crate::fake::OnlyPositions;
use highwater_flow::CheckpointInterval;
use highwater_flow::{GroupPositions, PartitionSource, PositionStore, RunError, Sink, run};
use highwater_log::{GroupError, Membership, Offset};

fn sink(groups: &Arc<OnlyPositions>, generation: i32) -> (GroupPositions, Sink) {
    let positions = GroupPositions {
        groups: Arc::clone(groups) as _,
        member: Membership {
            group: "readers".into(),
            generation,
            member: "m-1".into(),
            instance: None,
        },
    };
    let letters = Arc::new(Letters::default());
    let sink = Sink::new(Arc::new(positions.clone()), letters, TokioClock::start());
    (positions, sink)
}

#[test]
fn a_run_begins_where_the_group_has_come_to() {
    paused(async {
        let (partition, groups) = (partition().await, Arc::default());
        append(&partition, &[None; 5]).await;
        for (until, handled) in [(2, 2), (5, 3)] {
            let (positions, sink) = sink(&groups, 3);
            let last = positions.last(partition.topic_partition()).await.unwrap();
            let source = PartitionSource::new(Arc::clone(&partition), last.unwrap_or_default());
            let summary = run(source.until(Offset(until)), sink, pending()).await;
            assert_eq!(summary.unwrap().handled, handled);
            let last = positions.last(partition.topic_partition()).await.unwrap();
            assert_eq!(last, Some(Offset(until)));
        }
    });
}

#[test]
fn a_member_that_has_lost_its_partition_stops() {
    paused(async {
        let (partition, groups) = (partition().await, Arc::default());
        append(&partition, &[None; 5]).await;
        let (_, sink) = sink(&groups, 2);
        let checkpoint_interval = CheckpointInterval {
            events: 1,
            ..CheckpointInterval::default()
        };
        let source = PartitionSource::new(partition, Offset(0));
        let ended = run(
            source,
            Sink {
                checkpoint_interval,
                ..sink
            },
            pending(),
        )
        .await;
        let (requested, current) = (2, 3);
        let lost = GroupError::IllegalGeneration { requested, current };
        assert_eq!(ended, Err(RunError::Position(lost)));
    });
}
