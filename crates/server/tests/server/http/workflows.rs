//! Workflows over HTTP, with functions instead of services.

use std::sync::Arc;

use highwater_env::SimClock;
use highwater_log::Log;
use highwater_server::http::Backend;
use highwater_server::workflows::Workflows;
use highwater_workflow::call::{CallError, Functions};
use highwater_workflow::definition::{Builder, StepBuilder};
use highwater_workflow::{Options, Service, Supervision};
use serde_json::json;

use crate::http::node::{Node, memory, options, start_on};

/// A workflow `order` with a step that reserves and one that pays, unless the input says not to. What
/// was reserved cannot be given back.
async fn node() -> Node {
    node_with(Supervision::Here).await
}

async fn node_with(supervision: Supervision) -> Node {
    let log: Arc<dyn Log> = Arc::new(memory());
    let definition = Builder::new("order")
        .step(StepBuilder::function("reserve", "reserve").undo_function("give-back"))
        .step(StepBuilder::function("pay", "pay"))
        .build()
        .unwrap();
    let functions = Functions::new()
        .with("reserve", async |call| Ok(json!({"for": *call.id})))
        .with("give-back", async |_| {
            Err(CallError::permanent("it is stuck"))
        })
        .with("pay", async |call| match &call.input[..] {
            b"{\"pay\":false}" => Err(CallError::refused("no money")),
            _ => Ok(json!(true)),
        });
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let options_of = Options::default();
    let service = Service::open(&log, clock, definition, functions, options_of, supervision);
    let service = service.await.unwrap();
    let workflows = Workflows::default();
    workflows.add(service.handle());
    tokio::spawn(service.run(std::future::pending()));
    let backend = Backend {
        workflows,
        ..Backend::new(log)
    };
    start_on(options(), Vec::new(), backend).await
}

async fn until(node: &Node, path: &str, state: &str) -> serde_json::Value {
    loop {
        let view = node.get(path).await.json();
        if view["state"] == state {
            return view;
        }
        tokio::task::yield_now().await;
    }
}

// proves W6
#[tokio::test]
async fn the_same_id_twice_runs_once() {
    let node = node().await;
    let first = node.call("PUT /workflows/order/o-1", &[], "{}").await;
    assert_eq!(first.status, 201);
    let expected = json!({"workflow": "order", "id": "o-1", "state": "running"});
    assert_eq!(first.json(), expected);
    let view = until(&node, "/workflows/order/o-1", "completed").await;
    assert_eq!(view["steps"][0]["body"], "{\"for\":\"o-1\"}");
    let again = node.call("PUT /workflows/order/o-1", &[], "{}").await;
    assert_eq!(
        (again.status, &again.json()["state"]),
        (200, &json!("completed"))
    );
    let list = node.get("/api/workflows/order").await.json();
    assert_eq!(list["instances"].as_array().unwrap().len(), 1);
}

// proves W4
#[tokio::test]
async fn what_is_parked_is_listed_and_resolved() {
    let node = node().await;
    node.call("PUT /workflows/order/o-2", &[], "{\"pay\":false}")
        .await;
    until(&node, "/api/workflows/order/o-2", "parked").await;
    let list = node.get("/api/workflows/order?state=parked").await.json();
    assert_eq!(list["instances"][0]["reason"], "no money");
    let cancel = "POST /api/workflows/order/o-2/cancel";
    node.call(cancel, &[], "").await.is(409, "conflict");
    let resolve = "POST /api/workflows/order/o-2/resolve";
    let resolved = node.call(resolve, &[], "{\"note\":\"by hand\"}").await;
    assert_eq!(resolved.json()["notes"], json!(["by hand"]));
    until(&node, "/api/workflows/order/o-2", "resolved").await;
    node.call(resolve, &[], "").await.is(409, "conflict");
    let workflows = node.get("/api/workflows").await.json();
    assert_eq!(workflows["workflows"][0]["name"], "order");
}

#[tokio::test]
async fn what_is_not_there_is_said_to_be() {
    let node = node().await;
    node.get("/workflows/order/o-9").await.is(404, "not_found");
    node.call("PUT /workflows/other/o-9", &[], "{}")
        .await
        .is(404, "not_found");
    node.call("PUT /workflows/order/o-9", &[], "{")
        .await
        .is(400, "bad_request");
    let retry = "POST /api/workflows/order/o-9/retry";
    node.call(retry, &[], "").await.is(404, "not_found");
    node.get("/api/workflows/order?limit=0")
        .await
        .is(400, "bad_request");
}

// proves W4
#[tokio::test]
async fn what_failed_is_lent_to_supervisors_elsewhere() {
    let node = node_with(Supervision::Elsewhere).await;
    let workflows = node.get("/api/workflows").await.json();
    assert_eq!(workflows["workflows"][0]["supervisor"], "elsewhere");
    node.call("PUT /workflows/order/o-2", &[], "{\"pay\":false}")
        .await;
    until(&node, "/api/workflows/order/o-2", "undoing").await;

    let claim = json!({"most": 10, "wait_ms": 0, "lasts_ms": 60_000}).to_string();
    let mut lock = None;
    for partition in 0..2 {
        let line = format!("POST /api/workflows/order/failed/{partition}/claim");
        let offer = node.call(&line, &[], &claim).await.json();
        if let Some(instance) = offer["instances"].get(0) {
            assert_eq!(instance["id"], "o-2");
            assert_eq!(offer["definitions"].as_object().unwrap().len(), 1);
            lock = Some((partition, offer["lock"].clone()));
        }
    }
    let (partition, lock) = lock.expect("one partition has it");
    let line = |verb: &str| format!("POST /api/workflows/order/failed/{partition}/{verb}");
    let again = node.call(&line("claim"), &[], &claim).await.json();
    assert_eq!(again["instances"], json!([]), "another supervisor has it");

    let report = |events| json!({"lock": lock, "events": events}).to_string();
    let nonsense = report(json!([{"id": "o-2", "event": "AAAA"}]));
    (node.call(&line("report"), &[], &nonsense).await).is(400, "bad_request");
    let nothing = node.call(&line("report"), &[], &report(json!([]))).await;
    assert_eq!(nothing.json(), json!({"refused": []}));

    let farewell = json!({"lock": lock}).to_string();
    assert_eq!(node.call(&line("return"), &[], &farewell).await.status, 200);
    (node.call(&line("report"), &[], &report(json!([]))).await).is(410, "lock_lost");
    let again = node.call(&line("claim"), &[], &claim).await.json();
    assert_eq!(again["instances"][0]["id"], "o-2", "it was given back");
}

#[tokio::test]
async fn a_node_that_undoes_lends_nothing() {
    let node = node().await;
    let claim = json!({"most": 1, "wait_ms": 0, "lasts_ms": 1000}).to_string();
    let line = "POST /api/workflows/order/failed/0/claim";
    node.call(line, &[], &claim).await.is(404, "not_found");
}
