//! Remote supervisors.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Reply, Running, Script, delivery_within, memory_log};
use highwater_env::{EgressPolicy, RealClock};
use highwater_workflow::call::{Functions, ServicePools};
use highwater_workflow::supervise::{Options, Supervisor};
use highwater_workflow::{OperatorCommand, StartOutcome, Supervision};
use tokio::task::JoinHandle;

const INPUT: &[u8] = br#"{"size":"Small"}"#;

async fn keeper(log: &Arc<dyn highwater_log::Log>, url: &str) -> Running {
    let (definition, elsewhere) = (delivery_within(url, "60s"), Supervision::Elsewhere);
    Running::part(log, &definition, Functions::new(), elsewhere).await
}

/// A supervisor per partition; aborting it is as sudden as `kill -9`.
fn supervise(workflow: &Running) -> Vec<JoinHandle<()>> {
    let partitions = 0..workflow.handle.partitions();
    let supervisors = partitions.map(|partition| {
        let clock = Arc::new(RealClock::new());
        let supervisor = Supervisor {
            source: Arc::new(workflow.handle.failed_instances(partition).unwrap()),
            clock: clock.clone(),
            pools: ServicePools::new(clock, Functions::new(), EgressPolicy::default()),
            options: Options {
                lock: Duration::from_millis(300),
                ..Options::default()
            },
        };
        tokio::spawn(supervisor.run(std::future::pending()))
    });
    supervisors.collect()
}

// proves W4
#[tokio::test]
async fn what_failed_waits_for_a_supervisor_to_come() {
    let script = Script::default();
    script.on("PUT /drones/d-1", &[Reply::Answer(409, "")]);
    let url = script.serve().await;
    let workflow = keeper(&memory_log(), &url).await;
    workflow.handle.start("d-1", INPUT).await.unwrap();
    workflow.handle.start("d-2", INPUT).await.unwrap();
    workflow.until("d-2", &["completed"]).await;
    workflow.until("d-1", &["undoing"]).await;
    assert_eq!(script.lines().len(), 5, "nobody is there to undo anything");

    let supervisors = supervise(&workflow);
    workflow.until("d-1", &["refused"]).await;
    assert_eq!(script.lines().last().unwrap(), "DELETE /packages/d-1");
    while workflow.handle.running() > 0 {
        tokio::task::yield_now().await;
    }
    let again = workflow.handle.start("d-1", INPUT).await;
    assert_eq!(again, Ok(StartOutcome::Existing("refused")));
    supervisors.iter().for_each(JoinHandle::abort);
    workflow.stop().await;
}

// proves W4, W6
#[tokio::test]
async fn what_a_dead_supervisor_had_another_does_under_the_same_key() {
    let script = Script::default();
    script.on("PUT /deliveries/d-1", &[Reply::Answer(400, "")]);
    script.on("DELETE /drones/d-1", &[Reply::Silence]);
    let url = script.serve().await;
    let workflow = keeper(&memory_log(), &url).await;
    workflow.handle.start("d-1", INPUT).await.unwrap();
    let first = supervise(&workflow);
    script.asked_for("DELETE /drones/d-1").await;
    first.iter().for_each(JoinHandle::abort);

    script.on("DELETE /drones/d-1", &[Reply::Answer(204, "")]);
    let second = supervise(&workflow);
    workflow.until("d-1", &["failed"]).await;
    let undone = script.asked().split_off(3);
    let keys: Vec<&str> = undone.iter().map(|asked| asked.key.as_str()).collect();
    let (last, drones) = keys.split_last().unwrap();
    assert_eq!(*last, "delivery/d-1/package/undo");
    assert!(drones.len() >= 2 && drones.iter().all(|key| *key == "delivery/d-1/drone/undo"));
    second.iter().for_each(JoinHandle::abort);
    workflow.stop().await;
}

// proves W4
#[tokio::test]
async fn a_supervisor_goes_on_when_the_keeper_was_restarted_and_a_person_decided() {
    let script = Script::default();
    script.on("PUT /deliveries/d-1", &[Reply::Answer(400, "")]);
    script.on("DELETE /drones/d-1", &[Reply::Answer(500, "stuck")]);
    let url = script.serve().await;
    let log = memory_log();
    let workflow = keeper(&log, &url).await;
    workflow.handle.start("d-1", INPUT).await.unwrap();
    let supervisors = supervise(&workflow);
    let view = workflow.until("d-1", &["parked"]).await;
    assert_eq!(view.steps[1].undo.as_ref().unwrap().state, "parked");
    supervisors.iter().for_each(JoinHandle::abort);
    workflow.stop().await;

    let workflow = keeper(&log, &url).await;
    let supervisors = supervise(&workflow);
    script.on("DELETE /drones/d-1", &[Reply::Answer(204, "")]);
    let note = "it is back".to_owned();
    let retry = OperatorCommand::Retry { note };
    workflow.handle.decide("d-1", retry).await.unwrap();
    workflow.until("d-1", &["failed"]).await;
    supervisors.iter().for_each(JoinHandle::abort);
    workflow.stop().await;
}
