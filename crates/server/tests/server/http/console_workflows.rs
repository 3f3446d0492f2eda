//! The console's pages of workflows, the filters of their lists, and decisions about many instances at once.

use std::sync::Arc;

use highwater_access::{Key, KeyScope, Rights};
use highwater_env::SimClock;
use highwater_log::Log;
use highwater_server::http::Backend;
use highwater_server::workflows::Workflows;
use highwater_workflow::call::{CallError, Functions};
use highwater_workflow::definition::{Builder, StepBuilder};
use highwater_workflow::{Options, Service, Supervision};
use serde_json::{Value, json};

use crate::http::node::{Answer, Node, memory, options, start_on};

const HTML: &str = "accept: text/html";

/// A workflow `order` whose second step refuses an input with `refuse`, and whose first step cannot be undone then.
async fn node(keys: Vec<Key>) -> Node {
    let log: Arc<dyn Log> = Arc::new(memory());
    let definition = Builder::new("order")
        .step(StepBuilder::function("reserve", "reserve").undo_function("give-back"))
        .step(StepBuilder::function("pay", "pay"))
        .build()
        .unwrap();
    let functions = Functions::new()
        .with("reserve", async |call| Ok(json!({"for": *call.id})))
        .with("give-back", async |_| {
            Err(CallError::permanent("<b>stuck</b>"))
        })
        .with("pay", async |call| {
            match call.input.starts_with(b"{\"refuse\"") {
                true => Err(CallError::refused("no money")),
                false => Ok(json!(true)),
            }
        });
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let service = Service::open(
        &log,
        clock,
        definition,
        functions,
        Options::default(),
        Supervision::Here,
    );
    let service = service.await.unwrap();
    let workflows = Workflows::default();
    workflows.add(service.handle());
    tokio::spawn(service.run(std::future::pending()));
    let backend = Backend {
        workflows,
        ..Backend::new(log)
    };
    start_on(options(), keys, backend).await
}

async fn start(node: &Node, id: &str, input: &str) {
    let line = format!("PUT /workflows/order/{id}");
    assert_eq!(node.call(&line, &[], input).await.status, 201);
}

/// The ids of a list, once it has this many.
async fn ids(node: &Node, query: &str, count: usize) -> (Vec<String>, Value) {
    loop {
        let list = node.get(&format!("/api/workflows/order?{query}")).await;
        let list = list.json();
        let instances = list["instances"].as_array().unwrap().iter();
        let ids: Vec<String> = instances
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect();
        if ids.len() == count {
            return (ids, list["next"].clone());
        }
        tokio::task::yield_now().await;
    }
}

async fn page(node: &Node, path: &str) -> Answer {
    let page = node.call(&format!("GET {path}"), &[HTML], "").await;
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    page
}

// proves W4, U2
#[tokio::test]
async fn a_list_is_filtered_and_goes_on_page_by_page() {
    let node = node(Vec::new()).await;
    for n in 0..7 {
        start(&node, &format!("done-{n}"), "{}").await;
        start(&node, &format!("stuck-{n}"), "{\"refuse\":1}").await;
    }
    ids(&node, "state=parked", 7).await;
    ids(&node, "state=completed", 7).await;
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/workflows/order?limit=3{after}");
        let list = node.get(&path).await.json();
        let instances = list["instances"].as_array().unwrap();
        assert!(instances.len() <= 3);
        seen.extend(instances.iter().map(|one| one["id"].to_string()));
        match list["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert!(seen[..7].iter().all(|id| id.contains("stuck")), "{seen:?}");
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), count), (14, 14), "each instance once");

    assert_eq!(ids(&node, "id=done-3", 1).await.0, ["done-3"]);
    assert_eq!(ids(&node, "id=done-", 7).await.0.len(), 7);
    ids(&node, "version=nothing", 0).await;
    ids(&node, "from=2020-01-01T00:00:00Z", 0).await;
    ids(&node, "until=2020-01-01T00:00:00Z", 14).await;
    for wrong in ["state=gone", "from=yesterday", "after=x"] {
        node.get(&format!("/api/workflows/order?{wrong}"))
            .await
            .is(400, "bad_request");
    }
}

// proves W4
#[tokio::test]
async fn one_decision_for_all_that_match_after_a_dry_run() {
    let node = node(Vec::new()).await;
    for id in ["a-1", "a-2", "b-1"] {
        start(&node, id, "{\"refuse\":1}").await;
    }
    ids(&node, "state=parked", 3).await;
    let resolve = "POST /api/workflows/order/resolve";
    let dry = node
        .call(resolve, &[], r#"{"id":"a-","dry_run":true}"#)
        .await
        .json();
    assert_eq!(dry["would_decide"].as_array().unwrap().len(), 2);
    ids(&node, "state=parked", 3).await;
    let skip = "POST /api/workflows/order/skip";
    let other = node
        .call(skip, &[], r#"{"step":"pay","dry_run":true}"#)
        .await
        .json();
    assert_eq!(other["would_decide"], json!([]), "nothing is parked there");
    let done = node
        .call(resolve, &[], r#"{"id":"a-","note":"by hand"}"#)
        .await
        .json();
    assert_eq!(
        (&done["decided"], &done["refused"]),
        (&json!(2), &json!([]))
    );
    ids(&node, "state=resolved", 2).await;
    let shown = node.get("/api/workflows/order/a-1").await.json();
    assert_eq!(shown["notes"], json!(["by hand"]));
    let named = r#"{"ids":["a-1","b-1","nobody"]}"#;
    let done = node.call(resolve, &[], named).await.json();
    assert_eq!(
        (&done["decided"], &done["refused"][0]["id"]),
        (&json!(1), &json!("a-1"))
    );
    node.call(resolve, &[], r#"{"state":"completed"}"#)
        .await
        .is(400, "bad_request");
}

// proves U2
#[tokio::test]
async fn instances_and_their_timeline_are_shown_and_escaped() {
    let node = node(Vec::new()).await;
    let empty = page(&node, "/console/workflows").await;
    assert!(
        empty
            .body
            .contains("highwater workflow start order first-1")
    );
    start(&node, "%3Cscript%3E", "{\"refuse\":\"<script>x\"}").await;
    start(&node, "fine", "{}").await;
    ids(&node, "state=parked", 1).await;
    ids(&node, "state=completed", 1).await;
    let list = page(&node, "/console/workflows?state=parked&id=&from=").await;
    assert!(list.body.contains("/console/workflows/order/%3Cscript%3E"));
    assert!(list.body.contains("Retry all parked…") && !list.body.contains("order/fine"));
    let one = page(&node, "/console/workflows/order/%3Cscript%3E").await;
    for part in [
        "no money",
        "&lt;b&gt;stuck&lt;/b&gt;",
        "&lt;script&gt;x",
        "function give-back",
        "/api/workflows/order/%3Cscript%3E/resolve",
        "<option value=\"reserve\">",
    ] {
        assert!(one.body.contains(part), "no `{part}` in {}", one.body);
    }
    assert!(!one.body.contains("<script>x") && !one.body.contains("<b>stuck"));
    let wrong = page(&node, "/console/workflows?until=soon").await;
    assert!(wrong.body.contains("`soon` is no time"));
    let none = "GET /console/workflows/order/nobody";
    assert_eq!(node.call(none, &[HTML], "").await.status, 404);
}

// proves U3
#[tokio::test]
async fn a_key_without_the_right_sees_no_instances_and_decides_nothing() {
    let keys = vec![
        Key::new("root", "root-secret", Rights::ALL, KeyScope::UNLIMITED),
        Key::new(
            "guest",
            "guest-secret",
            Rights::ALL,
            KeyScope::of_hubs("guest", ["h"]),
        ),
    ];
    let node = node(keys).await;
    let guest = "authorization: Bearer guest:guest-secret";
    let list = node
        .call("GET /console/workflows", &[HTML, guest], "")
        .await;
    assert_eq!(list.status, 200);
    assert!(list.body.contains("No workflow is set up"), "{}", list.body);
    let one = "GET /console/workflows/order/o-1";
    assert_eq!(node.call(one, &[HTML, guest], "").await.status, 403);
    let decide = "POST /api/workflows/order/retry";
    node.call(decide, &[guest], "{}").await.is(403, "forbidden");
}
