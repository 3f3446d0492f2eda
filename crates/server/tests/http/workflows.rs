//! Workflows over HTTP, with functions in place of services.

use std::sync::Arc;

use highwater_env::SimClock;
use highwater_log::Log;
use highwater_server::http::Backend;
use highwater_server::workflows::Workflows;
use highwater_workflow::call::{CallError, Functions};
use highwater_workflow::definition::{Builder, StepBuilder};
use highwater_workflow::{Options, Service, Supervision};
use serde_json::json;

use crate::node::{Node, memory, options, start_on};

/// A workflow `order` with a step that reserves and one that pays, unless the input says not to. What
/// was reserved cannot be given back.
async fn node() -> Node {
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
    let service = Service::open(
        &log,
        clock,
        definition,
        functions,
        options_of,
        Supervision::Here,
    );
    let service = service.await.unwrap();
    let mut workflows = Workflows::default();
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
