//! The fold, one rule a test.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::definition::{Builder, StepBuilder};

fn step(name: &str) -> StepBuilder {
    let url = format!("http://s/{name}");
    StepBuilder::call(name, "PUT", &url).undo("DELETE", &url)
}

fn started(builder: Builder, input: &'static str) -> Instance {
    let definition = Arc::new(builder.build().unwrap());
    let version = definition.version();
    let input = Bytes::from_static(input.as_bytes());
    Instance::started(Arc::from("i"), definition, version, input, 100)
}

fn attempt(step: u16, undo: bool, at_ms: Millis) -> AttemptSpan {
    AttemptSpan {
        step,
        undo,
        begun_ms: at_ms - 1,
        at_ms,
    }
}

fn done(step: u16, at_ms: Millis, body: &'static str) -> Event {
    Event::Succeeded {
        attempt: attempt(step, false, at_ms),
        answer: Answer {
            status: 200,
            body: Bytes::from_static(body.as_bytes()),
        },
    }
}

fn undone(step: u16) -> Event {
    Event::Succeeded {
        attempt: attempt(step, true, 900),
        answer: Answer {
            status: 200,
            body: Bytes::new(),
        },
    }
}

fn failed(step: u16, at_ms: Millis, kind: FailureKind, in_doubt: bool) -> Event {
    Event::Failed {
        attempt: attempt(step, false, at_ms),
        kind,
        in_doubt,
        reason: "503".into(),
    }
}

fn surrendered(doubtful: u64) -> Event {
    Event::UndoStarted {
        at_ms: 800,
        doubtful,
    }
}

/// Steps to execute or compensate, now or later.
fn tasks(instance: &Instance) -> Vec<(u16, bool, Millis, u32)> {
    let all = |task: Task| (task.step, task.undo, task.due_ms, task.attempt);
    instance.tasks().map(all).collect()
}

#[test]
fn steps_come_one_after_another_and_groups_together() {
    let builder = Builder::new("w")
        .step(step("a"))
        .step(step("b").group("g"))
        .step(
            step("c")
                .group("g")
                .after(std::time::Duration::from_millis(50)),
        )
        .step(step("d"));
    let mut instance = started(builder, "{}");
    assert_eq!(tasks(&instance), [(0, false, 100, 1)]);
    instance.apply(done(0, 200, ""));
    assert_eq!(tasks(&instance), [(1, false, 200, 1), (2, false, 250, 1)]);
    instance.apply(done(2, 300, ""));
    assert_eq!(tasks(&instance), [(1, false, 200, 1)]);
    instance.apply(done(1, 400, ""));
    assert_eq!(tasks(&instance), [(3, false, 400, 1)]);
    instance.apply(done(3, 500, ""));
    assert_eq!(instance.end(), Some(End::Completed));
    assert_eq!(tasks(&instance), []);
}

#[test]
fn conditions_pass_over_steps_refuse_and_finish() {
    let builder = || {
        Builder::new("w")
            .step(step("account").refuse_when("steps.account.body == false", "suspended"))
            .step(
                step("check")
                    .when("input.check")
                    .finish_when("steps.check.body == 'enough'"),
            )
            .step(step("rest"))
    };
    let mut refused = started(builder(), "{}");
    refused.apply(done(0, 200, "false"));
    let cause = refused.cause.clone().unwrap();
    assert_eq!(
        (cause.end, cause.reason.as_str()),
        (End::Refused, "suspended")
    );

    let mut passed = started(builder(), "{}");
    passed.apply(done(0, 200, "true"));
    assert_eq!(passed.steps[1].done.status, Status::Passed);
    assert_eq!(tasks(&passed), [(2, false, 200, 1)]);

    let mut finished = started(builder(), r#"{"check":true}"#);
    finished.apply(done(0, 200, "true"));
    finished.apply(done(1, 300, "enough"));
    assert_eq!(finished.end(), Some(End::Completed));
    assert_eq!(finished.steps[2].done.status, Status::Passed);
}

// proves W3
#[test]
fn what_was_done_or_is_in_doubt_is_undone_from_the_last_to_the_first() {
    let builder = Builder::new("w")
        .step(step("a"))
        .step(step("b"))
        .step(step("c"));
    let mut instance = started(builder, "{}");
    instance.apply(done(0, 200, ""));
    instance.apply(failed(1, 300, FailureKind::Retry { due_ms: 350 }, true));
    assert_eq!(tasks(&instance), [(1, false, 350, 2)]);
    instance.apply(failed(1, 400, FailureKind::Refused, false));
    assert_eq!((instance.phase, tasks(&instance)), (Phase::Failing, vec![]));
    instance.apply(surrendered(0));
    assert_eq!(
        tasks(&instance),
        [(1, true, 800, 1)],
        "the first attempt timed out"
    );
    instance.apply(undone(1));
    assert_eq!(tasks(&instance), [(0, true, 800, 1)]);
    instance.apply(undone(0));
    assert_eq!(instance.end(), Some(End::Refused));
}

#[test]
fn a_step_that_surely_was_not_done_is_not_undone() {
    let builder = Builder::new("w").step(step("a")).step(step("b"));
    let mut instance = started(builder, "{}");
    instance.apply(failed(0, 200, FailureKind::Final, false));
    instance.apply(surrendered(0));
    assert_eq!(
        instance.end(),
        Some(End::Failed),
        "there is nothing to undo"
    );
}

// proves W5
#[test]
fn after_a_crash_what_was_to_be_begun_is_in_doubt_until_it_succeeds() {
    let builder = Builder::new("w").step(step("a")).step(step("b"));
    let mut instance = started(builder, "{}");
    instance.recovered(150);
    assert_eq!(instance.doubtful(), 1);
    let mut cancelled = instance.clone();
    cancelled.apply(Event::Cancelled {
        at_ms: 160,
        note: String::new(),
    });
    cancelled.apply(surrendered(cancelled.doubtful()));
    assert_eq!(tasks(&cancelled), [(0, true, 800, 1)]);
    instance.apply(done(0, 200, ""));
    assert!(!instance.steps[0].in_doubt);
}

// proves W5
#[test]
fn an_outcome_counts_once() {
    let builder = Builder::new("w").step(step("a")).step(step("b"));
    let mut instance = started(builder, "{}");
    instance.apply(done(0, 200, "first"));
    let before = instance.clone();
    instance.apply(done(0, 200, "second"));
    instance.apply(failed(0, 200, FailureKind::Final, true));
    assert_eq!(instance, before);
}

#[test]
fn the_deadline_of_the_whole_counts_from_the_start_and_only_while_it_runs() {
    let builder = Builder::new("w").deadline(std::time::Duration::from_millis(500));
    let mut instance = started(builder.step(step("a")), "{}");
    assert_eq!(instance.deadline_ms(), Some(600));
    instance.apply(Event::DeadlinePassed { at_ms: 600 });
    assert_eq!(
        (instance.phase, instance.deadline_ms()),
        (Phase::Failing, None)
    );
}

// proves W6
#[test]
fn the_key_of_a_call_is_made_of_names_alone() {
    let instance = started(Builder::new("w").step(step("a")), "{}");
    assert_eq!(instance.idempotency_key(0, false), "w/i/a");
    assert_eq!(instance.idempotency_key(0, true), "w/i/a/undo");
}
