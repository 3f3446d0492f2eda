//! Failing services.

use crate::common::{Reply, Running, Script, delivery as definition, memory_log};
use highwater_workflow::{OperatorCommand, OperatorCommandError, StartOutcome};

const INPUT: &[u8] = br#"{"size":"Small"}"#;

/// Delivery d-1 against scripted services.
async fn begun(script: &Script) -> Running {
    let definition = definition(&script.serve().await);
    let workflow = Running::start(&memory_log(), &definition).await;
    workflow.handle.start("d-1", INPUT).await.unwrap();
    workflow
}

// proves W1, W6
#[tokio::test]
async fn steps_are_done_in_order_with_the_answers_of_those_before() {
    let script = Script::default();
    script.on("PUT /drones/d-1", &[Reply::Answer(200, "D-17")]);
    let url = script.serve().await;
    let workflow = Running::start(&memory_log(), &definition(&url)).await;
    let started = workflow.handle.start("d-1", INPUT).await;
    assert_eq!(started, Ok(StartOutcome::New));
    workflow.until("d-1", &["completed"]).await;
    let asked: Vec<_> = (script.asked().into_iter())
        .map(|asked| (asked.line, asked.key, asked.body))
        .collect();
    let expected = [
        (
            "PUT /packages/d-1",
            "delivery/d-1/package",
            r#"{"size":"Small"}"#,
        ),
        ("PUT /drones/d-1", "delivery/d-1/drone", ""),
        (
            "PUT /deliveries/d-1",
            "delivery/d-1/delivery",
            r#"{"drone":"D-17"}"#,
        ),
    ];
    let expected = expected.map(|(line, key, body)| (line.into(), key.into(), body.into()));
    assert_eq!(asked, expected);
    let again = workflow.handle.start("d-1", b"{}").await;
    assert_eq!(again, Ok(StartOutcome::Existing("completed")));
    workflow.stop().await;
}

// proves W2
#[tokio::test]
async fn a_transient_failure_is_tried_again_under_the_same_key() {
    let script = Script::default();
    let replies = [
        Reply::Answer(503, "busy"),
        Reply::HangUp,
        Reply::Answer(200, "D-17"),
    ];
    script.on("PUT /drones/d-1", &replies);
    let workflow = begun(&script).await;
    let view = workflow.until("d-1", &["completed"]).await;
    assert_eq!(view.steps[1].times.tries, 3);
    assert_eq!(view.attempts.len(), 2);
    assert_eq!(view.attempts[0].reason, "503 Service Unavailable: busy");
    let drones = (script.asked().into_iter()).filter(|asked| asked.line == "PUT /drones/d-1");
    let keys: Vec<String> = drones.map(|asked| asked.key).collect();
    assert_eq!(keys, ["delivery/d-1/drone"; 3]);
    workflow.stop().await;
}

// proves W3, W4
#[tokio::test]
async fn a_refusal_undoes_what_was_done_and_nothing_else() {
    let script = Script::default();
    script.on("PUT /drones/d-1", &[Reply::Answer(409, "no drone")]);
    let workflow = begun(&script).await;
    let view = workflow.until("d-1", &["refused"]).await;
    assert_eq!(view.reason.as_deref(), Some("409 Conflict: no drone"));
    assert_eq!(view.blame.as_deref(), Some("drone"));
    let expected = [
        "PUT /packages/d-1",
        "PUT /drones/d-1",
        "DELETE /packages/d-1",
    ];
    assert_eq!(script.lines(), expected);
    let undo = script.asked().pop().unwrap();
    assert_eq!(undo.key, "delivery/d-1/package/undo");
    workflow.stop().await;
}

// proves W3
#[tokio::test]
async fn a_step_that_timed_out_may_have_been_done_and_is_undone_too() {
    let script = Script::default();
    script.on("PUT /drones/d-1", &[Reply::Silence]);
    let workflow = begun(&script).await;
    let view = workflow.until("d-1", &["failed"]).await;
    assert!(view.steps[1].in_doubt);
    let undone = script.lines().split_off(4);
    assert_eq!(undone, ["DELETE /drones/d-1", "DELETE /packages/d-1"]);
    workflow.stop().await;
}

// proves W4
#[tokio::test]
async fn what_cannot_be_undone_waits_for_a_person() {
    let script = Script::default();
    script.on("PUT /deliveries/d-1", &[Reply::Answer(400, "")]);
    script.on("DELETE /drones/d-1", &[Reply::Answer(500, "stuck")]);
    let url = script.serve().await;
    let log = memory_log();
    let workflow = Running::start(&log, &definition(&url)).await;
    workflow.handle.start("d-1", INPUT).await.unwrap();
    let view = workflow.until("d-1", &["parked"]).await;
    assert_eq!(view.steps[1].undo.as_ref().unwrap().state, "parked");
    assert_eq!(view.steps[0].undo.as_ref().unwrap().state, "waiting");
    workflow.stop().await;

    // It is still parked after a restart, and continues when an operator decides.
    script.on("DELETE /drones/d-1", &[Reply::Answer(204, "")]);
    let workflow = Running::start(&log, &definition(&url)).await;
    workflow.until("d-1", &["parked"]).await;
    let note = "the drone service is back".to_owned();
    let decided = workflow
        .handle
        .decide("d-1", OperatorCommand::Retry { note })
        .await;
    assert_eq!(decided.unwrap().state, "undoing");
    let view = workflow.until("d-1", &["failed"]).await;
    assert_eq!(view.notes, ["the drone service is back"]);
    let last = script.lines().split_off(script.lines().len() - 2);
    assert_eq!(last, ["DELETE /drones/d-1", "DELETE /packages/d-1"]);
    workflow.stop().await;
}

// proves W4
#[tokio::test]
async fn a_person_skips_a_step_or_takes_care_of_everything() {
    let script = Script::default();
    for id in ["d-1", "d-2"] {
        script.on(&format!("PUT /deliveries/{id}"), &[Reply::Answer(400, "")]);
        script.on(&format!("DELETE /drones/{id}"), &[Reply::Answer(500, "")]);
    }
    let url = script.serve().await;
    let workflow = Running::start(&memory_log(), &definition(&url)).await;
    for id in ["d-1", "d-2"] {
        workflow.handle.start(id, INPUT).await.unwrap();
        workflow.until(id, &["parked"]).await;
    }
    let (step, note) = ("drone".to_owned(), "it crashed anyway".to_owned());
    let skip = OperatorCommand::Skip { step, note };
    workflow.handle.decide("d-1", skip.clone()).await.unwrap();
    workflow.until("d-1", &["failed"]).await;
    assert!(script.lines().contains(&"DELETE /packages/d-1".to_owned()));
    let again = workflow.handle.decide("d-1", skip).await;
    assert_eq!(again.unwrap_err(), OperatorCommandError::Unknown);

    let note = "by telephone".to_owned();
    workflow
        .handle
        .decide("d-2", OperatorCommand::Resolve { note })
        .await
        .unwrap();
    workflow.until("d-2", &["resolved"]).await;
    assert!(!script.lines().contains(&"DELETE /packages/d-2".to_owned()));
    workflow.stop().await;
}

// proves W5, W6
#[tokio::test]
async fn after_a_restart_nothing_is_done_twice_and_the_rest_is_done() {
    let script = Script::default();
    script.on("PUT /drones/d-1", &[Reply::Silence]);
    let url = script.serve().await;
    let log = memory_log();
    let definition = definition(&url);
    let workflow = Running::start(&log, &definition).await;
    workflow.handle.start("d-1", INPUT).await.unwrap();
    script.asked_for("PUT /drones/d-1").await;
    workflow.stop().await;
    script.on("PUT /drones/d-1", &[Reply::Answer(200, "D-17")]);
    let workflow = Running::start(&log, &definition).await;
    workflow.until("d-1", &["completed"]).await;
    let lines = script.lines();
    let packages = lines.iter().filter(|line| *line == "PUT /packages/d-1");
    assert_eq!(packages.count(), 1);
    workflow.stop().await;
    // The end is still known after another restart.
    let workflow = Running::start(&log, &definition).await;
    let again = workflow.handle.start("d-1", b"{}").await;
    assert_eq!(again, Ok(StartOutcome::Existing("completed")));
    workflow.stop().await;
}

// proves W3
#[tokio::test]
async fn cancelling_waits_for_the_call_under_way_and_undoes() {
    let script = Script::default();
    script.on("PUT /drones/d-1", &[Reply::Silence]);
    let workflow = begun(&script).await;
    script.asked_for("PUT /drones/d-1").await;
    let note = "the customer changed their mind".to_owned();
    let decided = workflow
        .handle
        .decide("d-1", OperatorCommand::Cancel { note })
        .await;
    assert_eq!(decided.unwrap().state, "failing");
    let view = workflow.until("d-1", &["cancelled"]).await;
    assert_eq!(
        view.reason.as_deref(),
        Some("the customer changed their mind")
    );
    let undone = script.lines().split_off(2);
    assert_eq!(undone, ["DELETE /drones/d-1", "DELETE /packages/d-1"]);
    workflow.stop().await;
}
