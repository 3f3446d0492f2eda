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

/// The names that the keys of the tests are limited to, and the scopes of operations on `h` that they cover.
struct TestScope {
    name: &'static str,
    settings: &'static str,
    covers: &'static [&'static str],
}

const SCOPES: &[TestScope] = &[
    TestScope {
        name: "node",
        settings: "",
        covers: &[
            "node",
            "hub",
            "queue",
            "body_name",
            "group",
            "deployment",
            "workflow",
            "dead_letters",
        ],
    },
    TestScope {
        name: "hub",
        settings: r#"hubs = ["h"]"#,
        covers: &["hub", "queue", "body_name"],
    },
    TestScope {
        name: "group",
        settings: "hubs = [\"other\"]\ngroups = [\"h\"]",
        covers: &["group"],
    },
    TestScope {
        name: "deployment",
        settings: "hubs = [\"other\"]\ndeployments = [\"h\"]",
        covers: &["deployment"],
    },
    TestScope {
        name: "workflow",
        settings: r#"hubs = ["__workflow.h"]"#,
        covers: &["workflow"],
    },
    TestScope {
        name: "dead_letters",
        settings: r#"hubs = ["h.dead"]"#,
        covers: &["dead_letters"],
    },
    TestScope {
        name: "items",
        settings: "hubs = [\"h\", \"__workflow.h\"]\ngroups = [\"h\"]\ndeployments = [\"h\"]",
        covers: &[
            "hub",
            "queue",
            "body_name",
            "group",
            "deployment",
            "workflow",
        ],
    },
    TestScope {
        name: "elsewhere",
        settings: r#"hubs = ["other"]"#,
        covers: &[],
    },
];

/// A key of the tests.
struct TestKey {
    name: String,
    rights: Vec<&'static str>,
    scope: &'static TestScope,
}

impl TestKey {
    /// Whether the table lets the key call an operation with this access. A list is open to all keys, and has the items
    /// that the key may see.
    fn may(&self, right: &str, scope: &str) -> bool {
        scope == "items" || self.rights.contains(&right) && self.scope.covers.contains(&scope)
    }
}

/// `RIGHT-SCOPE` has one right, `no-RIGHT-SCOPE` has the others, `all-SCOPE` has all of them, each limited to the
/// scope.
fn test_keys() -> Vec<TestKey> {
    let mut keys = Vec::new();
    for scope in SCOPES {
        let mut add = |name: &str, rights: Vec<&'static str>| {
            let name = format!("{name}-{}", scope.name);
            keys.push(TestKey {
                name,
                rights,
                scope,
            });
        };
        add("all", RIGHTS.to_vec());
        for right in RIGHTS {
            add(right, vec![right]);
            let others = RIGHTS.into_iter().filter(|other| *other != right);
            add(&format!("no-{right}"), others.collect());
        }
    }
    keys
}

/// A node where the hub, the queue, the workflow and the processor are all called `h`, with the keys of the tests.
async fn guarded(folder: &Path) -> WholeNode {
    let workflow = "name = \"h\"\n[services.s]\nurl = \"http://127.0.0.1:1\"\n\
        [[steps]]\nname = \"s\"\nservice = \"s\"\ncall = \"GET /\"\n";
    std::fs::write(folder.join("h.toml"), workflow).unwrap();
    let mut settings = "[hubs.h]\npartitions = 2\n[queues.h]\n\
        [processors.h]\nhub = \"h\"\nhandler = { url = \"http://127.0.0.1:1\" }\n\
        [workflows.h]\nfile = \"h.toml\"\nsupervisor = \"elsewhere\"\n"
        .to_owned();
    for TestKey {
        name,
        rights,
        scope,
    } in test_keys()
    {
        settings.push_str(&format!(
            "[[keys]]\nname = \"{name}\"\nsecret = \"secret\"\nrights = {rights:?}\n{}\n",
            scope.settings
        ));
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
    let keys = test_keys();
    for Described { line, access } in &operations {
        let anonymous = call_as(address, None, line).await;
        let Some((right, scope)) = access else {
            assert!(!is_refused(&anonymous), "{line}: {}", anonymous.body);
            continue;
        };
        assert_eq!(anonymous.status, 401, "{line}: {}", anonymous.body);
        for key in keys.iter().filter(|key| !key.may(right, scope)) {
            let (refused, name) = (call_as(address, Some(&key.name), line).await, &key.name);
            assert_eq!(refused.status, 403, "{line} as {name}: {}", refused.body);
        }
    }
    // This comes last, because it deletes things.
    for Described { line, access } in &operations {
        let Some((right, scope)) = access else {
            continue;
        };
        for key in keys.iter().filter(|key| key.may(right, scope)) {
            let (answer, name) = (call_as(address, Some(&key.name), line).await, &key.name);
            assert!(!is_refused(&answer), "{line} as {name}: {}", answer.body);
            assert!(is_routed(&answer), "{line}: {}", answer.body);
        }
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
        assert_eq!(count("all-elsewhere").await, 0, "{path}");
        assert_eq!(count("send-node").await, 0, "{path}");
    }
    node.stop().await;
}
