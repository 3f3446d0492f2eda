//! Deadlines, versions, intake from hubs, functions and notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use highwater_env::RealClock;
use highwater_flow::{MemoryPositions, PositionStore};
use highwater_log::batch::NewRecord;
use highwater_log::{HubName, HubSettings, HubSpec, Offset, TopicPartition};
use highwater_workflow::Template;
use highwater_workflow::call::{CallError, Functions};
use highwater_workflow::definition::{Breaker, Builder, Retry, StepBuilder};
use highwater_workflow::{
    Definition, HubIntake, Options, Service, StartError, StartOutcome, Supervision,
};
use serde_json::json;

use crate::common::{Reply, Running, Script, memory_log};

fn quick(tries: u32) -> Retry {
    Retry {
        tries,
        delay: Duration::from_millis(1),
        delay_max: Duration::from_millis(5),
        jitter: 0,
    }
}

// proves W5
#[tokio::test]
async fn a_running_instance_finishes_on_the_definition_it_started_with() {
    let script = Script::default();
    script.on("PUT /old/i-1", &[Reply::Silence]);
    let url = script.serve().await;
    let version = |path: &str| {
        Builder::new("w")
            .step(StepBuilder::call(
                "one",
                "PUT",
                &format!("{url}/{path}/{{{{id}}}}"),
            ))
            .step(StepBuilder::call(
                "two",
                "PUT",
                &format!("{url}/{path}-two/{{{{id}}}}"),
            ))
            .build()
            .unwrap()
    };
    let log = memory_log();
    let workflow = Running::start(&log, &version("old")).await;
    workflow.handle.start("i-1", b"{}").await.unwrap();
    workflow.stop().await;

    script.on("PUT /old/i-1", &[Reply::Answer(200, "")]);
    let workflow = Running::start(&log, &version("new")).await;
    workflow.handle.start("i-2", b"{}").await.unwrap();
    let old = workflow.until("i-1", &["completed"]).await;
    let new = workflow.until("i-2", &["completed"]).await;
    assert_ne!(old.version, new.version);
    let lines = script.lines();
    for line in ["PUT /old-two/i-1", "PUT /new-two/i-2"] {
        assert!(lines.contains(&line.to_owned()), "{lines:?}");
    }
    workflow.stop().await;
}

#[tokio::test]
async fn steps_of_a_group_are_done_side_by_side_and_the_next_waits_for_all() {
    let script = Script::default();
    script.on("PUT /b", &[Reply::Answer(503, ""), Reply::Answer(200, "")]);
    let url = script.serve().await;
    let call =
        |name: &str| StepBuilder::call(name, "PUT", &format!("{url}/{name}")).retry(quick(3));
    let definition = Builder::new("w")
        .step(call("a").group("g"))
        .step(call("b").group("g"))
        .step(call("no").group("g").when("input.no"))
        .step(call("c"))
        .build()
        .unwrap();
    let workflow = Running::start(&memory_log(), &definition).await;
    workflow.handle.start("i", b"{}").await.unwrap();
    let view = workflow.until("i", &["completed"]).await;
    assert_eq!(view.steps[2].state, "passed");
    let mut lines = script.lines();
    assert_eq!(lines.pop().unwrap(), "PUT /c");
    lines.sort();
    assert_eq!(lines, ["PUT /a", "PUT /b", "PUT /b"]);
    workflow.stop().await;
}

// proves W3
#[tokio::test]
async fn a_deadline_and_a_delay_survive_a_restart() {
    let url = Script::default().serve().await;
    let call = |name: &str| {
        let url = format!("{url}/{name}");
        StepBuilder::call(name, "PUT", &url).undo("DELETE", &url)
    };
    let definition = Builder::new("w")
        .deadline(Duration::from_millis(150))
        .step(call("first"))
        .step(call("never").after(Duration::from_secs(3600)))
        .build()
        .unwrap();
    let log = memory_log();
    let workflow = Running::start(&log, &definition).await;
    workflow.handle.start("i", b"{}").await.unwrap();
    workflow.stop().await;
    let workflow = Running::start(&log, &definition).await;
    let view = workflow.until("i", &["failed"]).await;
    assert_eq!(view.reason.as_deref(), Some("the deadline passed"));
    assert!(view.steps[1].undo.is_none(), "it was never begun");
    assert_eq!(view.steps[0].undo.as_ref().unwrap().state, "undone");
    assert!(view.changed_ms - view.started_ms >= 150);
    workflow.stop().await;
}

#[tokio::test]
async fn a_function_is_a_step_like_any_other() {
    let definition = Builder::new("w")
        .step(StepBuilder::function("price", "price").retry(quick(3)))
        .step(StepBuilder::function("pay", "pay").undo_function("unpay"))
        .build()
        .unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let functions = Functions::new()
        .with("price", move |_| {
            let asked = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match asked {
                    0 => Err(CallError::transient("not yet")),
                    _ => Ok(json!({"cents": 350})),
                }
            }
        })
        .with("pay", async |call| {
            let (_, price) = &call.answers[0];
            Ok(json!(String::from_utf8_lossy(&price.body)))
        });
    let workflow = Running::with(&memory_log(), &definition, functions).await;
    workflow.handle.start("i", b"{}").await.unwrap();
    let view = workflow.until("i", &["completed"]).await;
    assert_eq!(
        view.steps[1].times.body.as_deref(),
        Some(r#""{\"cents\":350}""#)
    );
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    workflow.stop().await;
}

// proves W4
#[tokio::test]
async fn those_who_are_to_know_are_told_of_what_is_parked() {
    let script = Script::default();
    script.on("PUT /two", &[Reply::Answer(400, "")]);
    script.on("DELETE /one", &[Reply::Answer(400, "locked")]);
    script.on(
        "POST /hook",
        &[Reply::Answer(500, ""), Reply::Answer(200, "")],
    );
    let url = script.serve().await;
    let definition = Builder::new("w")
        .notify(&format!("{url}/hook"))
        .step(
            StepBuilder::call("one", "PUT", &format!("{url}/one"))
                .undo("DELETE", &format!("{url}/one")),
        )
        .step(StepBuilder::call("two", "PUT", &format!("{url}/two")))
        .build()
        .unwrap();
    let workflow = Running::start(&memory_log(), &definition).await;
    workflow.handle.start("i", b"{}").await.unwrap();
    workflow.until("i", &["parked"]).await;
    let told = loop {
        let told: Vec<_> = (script.asked().into_iter())
            .filter(|asked| asked.line == "POST /hook")
            .collect();
        if told.len() == 2 {
            break told;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].key, "w/i/notify/parked");
    let view: serde_json::Value = serde_json::from_str(&told[0].body).unwrap();
    assert_eq!(view["state"], "parked");
    assert_eq!(view["attempts"][1]["reason"], "400 Bad Request: locked");
    workflow.stop().await;
}

// proves W2
#[tokio::test]
async fn while_a_circuit_is_open_calls_wait_without_using_up_their_tries() {
    let script = Script::default();
    script.on("PUT /x", &[Reply::Answer(503, "")]);
    let url = script.serve().await;
    let breaker = Breaker {
        window: Duration::from_secs(10),
        failures: 2,
        percent: 50,
        open: Duration::from_millis(100),
    };
    let definition = Builder::new("w")
        .service(&url, 4, Some(breaker))
        .step(StepBuilder::call("x", "PUT", &format!("{url}/x")).retry(quick(20)))
        .build()
        .unwrap();
    let workflow = Running::start(&memory_log(), &definition).await;
    workflow.handle.start("i", b"{}").await.unwrap();
    while script.lines().len() < 3 {
        tokio::task::yield_now().await;
    }
    script.on("PUT /x", &[Reply::Answer(200, "")]);
    let view = workflow.until("i", &["completed"]).await;
    assert_eq!(
        view.steps[0].times.tries, 4,
        "three opened it, and the probe succeeded"
    );
    assert!(view.changed_ms - view.started_ms >= 100);
    workflow.stop().await;
}

// proves W1, W6
#[tokio::test]
async fn every_record_of_a_hub_starts_one_instance() {
    let url = Script::default().serve().await;
    let definition = Builder::new("w")
        .step(StepBuilder::call("x", "PUT", &format!("{url}/x")))
        .build()
        .unwrap();
    let log = memory_log();
    let spec = HubSpec {
        name: HubName::new("orders").unwrap(),
        partitions: 2,
        settings: HubSettings::default(),
    };
    log.create(spec).await.unwrap();
    let partition = log.partition("orders", 1).unwrap();
    for value in [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":1}"#, "{}"] {
        let record = NewRecord {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        partition.append_records(&[record]).await.unwrap();
    }
    let positions = Arc::new(MemoryPositions::default());
    let clock = Arc::new(RealClock::new());
    let options = Options::default();
    let opened = Service::open(
        &log,
        clock.clone(),
        definition,
        Functions::new(),
        options,
        Supervision::Here,
    );
    let mut service = opened.await.unwrap();
    let handle = service.handle();
    service.add_intake(HubIntake {
        log: Arc::clone(&log),
        hub: "orders".into(),
        id: Some(Template::parse("order-{{input.n}}").unwrap()),
        positions: positions.clone(),
        dead: HubIntake::dead_letters(&*log, "w").await.unwrap(),
        clock,
        concurrency: 8,
    });
    let running = tokio::spawn(service.run(std::future::pending()));
    let place = TopicPartition {
        hub: HubName::new("orders").unwrap(),
        partition: 1,
    };
    let passed = async {
        while positions.last(&place).await.unwrap() != Some(Offset(4)) || handle.ended() < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), passed)
        .await
        .unwrap();
    assert_eq!(handle.ended(), 2);
    assert_eq!(
        handle.start("order-2", b"{}").await,
        Ok(StartOutcome::Existing("completed"))
    );
    let rejected = log.partition("__workflow.w.rejected", 0).unwrap();
    assert_eq!(rejected.bounds().end, Offset(1), "one has no number");
    running.abort();
}

#[tokio::test]
async fn more_instances_than_there_may_be_are_refused_for_now() {
    let definition = Builder::new("w")
        .step(StepBuilder::function("x", "x").after(Duration::from_secs(3600)))
        .build()
        .unwrap();
    let options = Options {
        running_max: 3,
        input_bytes_max: 1000,
        ..Options::default()
    };
    let log = memory_log();
    let clock = Arc::new(RealClock::new());
    let opened = Service::open(
        &log,
        clock,
        definition,
        Functions::new(),
        options,
        Supervision::Here,
    );
    let service = opened.await.unwrap();
    let handle = service.handle();
    let running = tokio::spawn(service.run(std::future::pending()));
    let large = format!("\"{}\"", "x".repeat(798));
    handle.start("i-0", large.as_bytes()).await.unwrap();
    let full = handle.start("i-1", large.as_bytes()).await;
    assert_eq!(full, Err(StartError::FullOfInputs(800)));
    for number in 1..3 {
        handle.start(&format!("i-{number}"), b"{}").await.unwrap();
    }
    let full = handle.start("i-3", b"{}").await;
    assert!(matches!(full, Err(StartError::Full(_))), "{full:?}");
    assert!(matches!(
        handle.start("", b"{}").await,
        Err(StartError::Id(_))
    ));
    running.abort();
}

// proves G2
#[tokio::test]
async fn inputs_that_a_start_has_restored_count_until_their_instances_end() {
    let script = Script::default();
    script.on("PUT /x", &[Reply::Silence]);
    let url = script.serve().await;
    let definition = Builder::new("w")
        .step(StepBuilder::call("x", "PUT", &format!("{url}/x")))
        .build()
        .unwrap();
    let log = memory_log();
    let open = || {
        let options = Options {
            input_bytes_max: 1000,
            ..Options::default()
        };
        let clock = Arc::new(RealClock::new());
        let functions = Functions::new();
        let (log, definition) = (&log, definition.clone());
        Service::open(
            log,
            clock,
            definition,
            functions,
            options,
            Supervision::Here,
        )
    };
    let large = format!("\"{}\"", "x".repeat(798));
    let service = open().await.unwrap();
    let handle = service.handle();
    let running = tokio::spawn(service.run(std::future::pending()));
    handle.start("i-0", large.as_bytes()).await.unwrap();
    running.abort();
    let _ = running.await;

    script.on("PUT /x", &[Reply::Answer(200, "")]);
    let service = open().await.unwrap();
    let handle = service.handle();
    let full = handle.start("i-1", large.as_bytes()).await;
    assert_eq!(full, Err(StartError::FullOfInputs(800)));
    let running = tokio::spawn(service.run(std::future::pending()));
    // Its memory is free when the instance has ended.
    while handle.start("i-1", large.as_bytes()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
}

/// Journals are compacted as they grow, and nothing is lost.
#[tokio::test]
async fn a_journal_stays_short_however_many_have_ended() {
    let script = Script::default();
    let url = script.serve().await;
    let definition: Definition = Builder::new("w")
        .step(StepBuilder::call("x", "PUT", &format!("{url}/x")))
        .step(StepBuilder::call("y", "PUT", &format!("{url}/y")).when("input.go == null"))
        .step(
            StepBuilder::function("wait", "wait")
                .when("input.go == false")
                .after(Duration::from_secs(3600)),
        )
        .build()
        .unwrap();
    let log = memory_log();
    let options = Options {
        partitions: 1,
        checkpoint_bytes: 4096,
        ..Options::default()
    };
    let clock = Arc::new(RealClock::new());
    let opened = Service::open(
        &log,
        clock,
        definition.clone(),
        Functions::new(),
        options,
        Supervision::Here,
    );
    let service = opened.await.unwrap();
    let handle = service.handle();
    let running = tokio::spawn(service.run(std::future::pending()));
    handle.start("waits", br#"{"go":false}"#).await.unwrap();
    for round in 0..20 {
        for number in 0..50 {
            handle
                .start(&format!("i-{round}-{number}"), b"{}")
                .await
                .unwrap();
        }
        while handle.ended() < 50 * (round + 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let journal = log.partition("__workflow.w", 0).unwrap().bounds();
    assert!(journal.end.0 > 4000, "{journal:?}");
    assert!(journal.end.0 - journal.start.0 < 1000, "{journal:?}");
    running.abort();

    let workflow = Running::start(&log, &definition).await;
    assert_eq!(workflow.handle.ended(), 1000);
    workflow.until("waits", &["running"]).await;
    workflow.until("i-0-0", &["completed"]).await;
    let again = workflow.handle.start("i-7-7", b"{}").await;
    assert_eq!(again, Ok(StartOutcome::Existing("completed")));
    workflow.stop().await;
}
