//! The table of operations against the API: every described operation is routed and guarded.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use highwater_env::RealClock;
use highwater_server::node::Node as WholeNode;
use serde_json::Value;

use crate::http::node::{Answer, call, node};
use crate::whole_node;

/// The path with values for its variables.
fn filled(path: &str) -> String {
    let part = |part: &str| match part {
        "{partition}" => "0".to_owned(),
        part if part.starts_with('{') => "h".to_owned(),
        part => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_described_operation_is_routed() {
    let node = node().await;
    let document = node.get("/api/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 10);
    for (path, operations) in paths {
        for method in operations.as_object().unwrap().keys() {
            let line = format!("{} {}", method.to_uppercase(), filled(path));
            let answer = node.call(&line, &[], "{}").await;
            assert!(is_routed(&answer), "{line}: {}", answer.body);
        }
        let wrong = node
            .call(&format!("OPTIONS {}", filled(path)), &[], "")
            .await;
        wrong.is(405, "method_not_allowed");
        let allow = wrong
            .head
            .lines()
            .find_map(|line| line.strip_prefix("allow: "));
        for method in operations.as_object().unwrap().keys() {
            let allow = allow.unwrap().split(", ");
            assert!(allow.clone().any(|name| name.eq_ignore_ascii_case(method)));
        }
    }
}

#[tokio::test]
async fn the_page_names_every_path_and_runs_no_script() {
    let node = node().await;
    let document = node.get("/api/openapi.json").await.json();
    let page = node.get("/api/docs").await;
    assert_eq!(page.status, 200);
    assert!(
        page.head
            .contains("content-security-policy: default-src 'none'")
    );
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(page.body.contains(path), "{path}");
    }
}

/// An operation as the document has it.
struct Described {
    line: String,
    /// Right and scope; `None` for a public operation.
    access: Option<(String, String)>,
}

fn described(document: &Value) -> Vec<Described> {
    let mut all = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let text = |name: &str| operation[name].as_str().map(str::to_owned);
            all.push(Described {
                line: format!("{} {}", method.to_uppercase(), filled(path)),
                access: text("x-right").zip(text("x-scope")),
            });
        }
    }
    all
}

const RIGHTS: [&str; 4] = ["send", "listen", "manage", "deploy"];

/// A node where the hub, the queue, the workflow and the processor are all called `h`, with keys for the tests: `all-RIGHT`
/// has one right over everything, `no-RIGHT` has the others, `elsewhere` has all rights over another hub, and
/// `RIGHT-SCOPE` has one right over the scope of `h`.
async fn guarded(folder: &Path) -> WholeNode {
    let workflow = "name = \"h\"\n[services.s]\nurl = \"http://127.0.0.1:1\"\n\
        [[steps]]\nname = \"s\"\nservice = \"s\"\ncall = \"GET /\"\n";
    std::fs::write(folder.join("h.toml"), workflow).unwrap();
    let mut settings = "[hubs.h]\npartitions = 2\n[queues.h]\n\
        [processors.h]\nhub = \"h\"\nhandler = { url = \"http://127.0.0.1:1\" }\n\
        [workflows.h]\nfile = \"h.toml\"\nsupervisor = \"elsewhere\"\n"
        .to_owned();
    let mut key = |name: &str, rights: &[&str], scope: &str| {
        settings.push_str(&format!(
            "[[keys]]\nname = \"{name}\"\nsecret = \"secret\"\nrights = {rights:?}\n{scope}\n"
        ));
    };
    key("elsewhere", &RIGHTS, "hubs = [\"other\"]");
    for right in RIGHTS {
        let others: Vec<&str> = RIGHTS.into_iter().filter(|other| *other != right).collect();
        key(&format!("no-{right}"), &others, "");
        key(&format!("all-{right}"), &[right], "");
        for (scope, names) in [
            ("hub", r#"hubs = ["h"]"#),
            ("queue", r#"hubs = ["h"]"#),
            ("body_name", r#"hubs = ["h"]"#),
            (
                "items",
                r#"hubs = ["h", "__workflow.h"]
                groups = ["h"]
                deployments = ["h"]"#,
            ),
            (
                "group",
                r#"hubs = ["other"]
                groups = ["h"]"#,
            ),
            (
                "deployment",
                r#"hubs = ["other"]
                deployments = ["h"]"#,
            ),
            ("workflow", r#"hubs = ["__workflow.h"]"#),
            ("dead_letters", r#"hubs = ["h.dead"]"#),
        ] {
            key(&format!("{right}-{scope}"), &[right], names);
        }
    }
    whole_node::start(folder, &settings, Arc::new(RealClock::new())).await
}

async fn call_as(address: SocketAddr, key: Option<&str>, line: &str) -> Answer {
    let header = key.map(|key| {
        let pair = STANDARD.encode(format!("{key}:secret"));
        format!("authorization: Basic {pair}")
    });
    let headers: Vec<&str> = header.as_deref().into_iter().collect();
    call(address, line, &headers, r#"{"name":"h"}"#).await
}

fn is_routed(answer: &Answer) -> bool {
    answer.status != 405 && !answer.body.contains("there is nothing at")
}

fn is_refused(answer: &Answer) -> bool {
    answer.status == 401 || answer.status == 403
}

// proves U3, G1
#[tokio::test(flavor = "multi_thread")]
async fn every_described_operation_is_guarded() {
    let folder = tempfile::tempdir().unwrap();
    let node = guarded(folder.path()).await;
    let address = node.http_address().unwrap();
    let document = call(address, "GET /api/openapi.json", &[], "").await.json();
    let operations = described(&document);
    assert!(operations.len() > 60);
    for Described { line, access } in &operations {
        let anonymous = call_as(address, None, line).await;
        let Some((right, scope)) = access else {
            assert!(!is_refused(&anonymous), "{line}: {}", anonymous.body);
            continue;
        };
        assert_eq!(anonymous.status, 401, "{line}: {}", anonymous.body);
        if scope == "items" {
            continue;
        }
        for key in [&format!("no-{right}"), "elsewhere"] {
            let refused = call_as(address, Some(key), line).await;
            assert_eq!(refused.status, 403, "{line} as {key}: {}", refused.body);
        }
    }
    // The narrowest key that will do. This comes last, because it deletes things.
    for Described { line, access } in &operations {
        let Some((right, scope)) = access else {
            continue;
        };
        let key = match scope.as_str() {
            "node" => format!("all-{right}"),
            scope => format!("{right}-{scope}"),
        };
        let answer = call_as(address, Some(&key), line).await;
        assert!(!is_refused(&answer), "{line} as {key}: {}", answer.body);
        assert!(is_routed(&answer), "{line}: {}", answer.body);
    }
    node.stop().await;
}

// proves U3, G1
#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_only_the_items_that_the_key_may_see() {
    let folder = tempfile::tempdir().unwrap();
    let node = guarded(folder.path()).await;
    let address = node.http_address().unwrap();
    for (path, field) in [
        ("/api/hubs", "hubs"),
        ("/api/queues", "queues"),
        ("/api/processors", "processors"),
        ("/api/circuits", "circuits"),
        ("/api/dead-letters", "dead_letters"),
        ("/api/workflows", "workflows"),
    ] {
        let line = format!("GET {path}");
        let count = async |key: &str| {
            let listed = call_as(address, Some(key), &line).await.json();
            listed[field].as_array().unwrap().len()
        };
        assert_eq!(count("listen-items").await, 1, "{path}");
        assert_eq!(count("elsewhere").await, 0, "{path}");
        assert_eq!(count("all-send").await, 0, "{path}");
    }
    node.stop().await;
}
