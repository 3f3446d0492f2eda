//! Authentication and rights.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use highwater_access::{Key, KeyScope, Right, sas};

use crate::http::node::{NOW_SECONDS, Node, memory, node, options, start};

async fn guarded() -> Node {
    let key = |name: &str, rights: &[Right], scope: KeyScope| {
        let rights = rights.iter().copied().collect();
        Key::new(name, &format!("{name}-secret"), rights, scope)
    };
    let keys = vec![
        key("all", &Right::ALL, KeyScope::UNLIMITED),
        key("sender", &[Right::Send], KeyScope::of_hubs("sender", ["h"])),
        key("reader", &[Right::Listen], KeyScope::UNLIMITED),
    ];
    start(options(), keys, Arc::new(memory())).await
}

fn basic(name: &str, secret: &str) -> String {
    format!(
        "authorization: Basic {}",
        STANDARD.encode(format!("{name}:{secret}"))
    )
}

// proves U3
#[tokio::test]
async fn without_a_key_only_health_is_told() {
    let node = guarded().await;
    for line in [
        "GET /api/hubs",
        "POST /hubs/h/messages",
        "GET /metrics",
        "GET /nothing",
        "DELETE /api/hubs/h",
        "PATCH /api/hubs/h",
        "POST /api/hubs/h/partitions/0/trim",
        "DELETE /api/groups/g",
    ] {
        let answer = node.call(line, &[], "").await;
        answer.is(401, "unauthorized");
        assert!(
            answer.head.contains("www-authenticate: "),
            "{}",
            answer.head
        );
    }
    assert_eq!(node.get("/healthz").await.status, 200);
    assert_eq!(node.get("/readyz").await.status, 200);
}

// proves U3
#[tokio::test(start_paused = true)]
async fn a_key_is_shown_in_any_of_three_ways() {
    let node = guarded().await;
    let token = sas::sign(
        "sender",
        b"sender-secret",
        "http://localhost/h",
        NOW_SECONDS + 60,
    );
    let good = [
        basic("sender", "sender-secret"),
        "authorization: Bearer sender:sender-secret".into(),
        format!("authorization: {token}"),
    ];
    for header in &good {
        for path in ["/hubs/h/messages", "/h/messages"] {
            let answer = node.call(&format!("POST {path}"), &[header], "x").await;
            assert_eq!(answer.status, 201, "{header}: {}", answer.body);
        }
    }
    let expired = sas::sign(
        "sender",
        b"sender-secret",
        "http://localhost/h",
        NOW_SECONDS,
    );
    let elsewhere = sas::sign(
        "all",
        b"all-secret",
        "http://localhost/other",
        NOW_SECONDS + 60,
    );
    let bad = [
        basic("sender", "wrong!"),
        basic("nobody", "sender-secret"),
        "authorization: Bearer sender".into(),
        "authorization: Basic %%%".into(),
        "authorization: Digest x".into(),
        format!("authorization: {expired}"),
        format!("authorization: {elsewhere}"),
        "authorization: SharedAccessSignature sr=a".into(),
    ];
    for header in &bad {
        let answer = node.call("POST /hubs/h/messages", &[header], "x").await;
        answer.is(401, "unauthorized");
        assert!(
            !answer.body.contains("secret-") && !answer.body.contains("-secret"),
            "{}",
            answer.body
        );
    }
}

// proves U3
#[tokio::test]
async fn a_key_may_do_what_its_rights_say() {
    let node = guarded().await;
    let (sender, reader) = (
        basic("sender", "sender-secret"),
        basic("reader", "reader-secret"),
    );
    node.call("GET /hubs/h/partitions/0/messages", &[&sender], "")
        .await
        .is(403, "forbidden");
    node.call("POST /hubs/other/messages", &[&sender], "x")
        .await
        .is(403, "forbidden");
    node.call("POST /hubs/h/messages", &[&reader], "x")
        .await
        .is(403, "forbidden");
    node.call("POST /api/hubs", &[&reader], r#"{"name":"x"}"#)
        .await
        .is(403, "forbidden");
    for line in [
        "DELETE /api/hubs/h",
        "PATCH /api/hubs/h",
        "POST /api/hubs/h/partitions/0/trim",
        "DELETE /api/groups/g",
    ] {
        node.call(line, &[&reader], "").await.is(403, "forbidden");
    }
    node.call("GET /hubs/__groups/partitions/0/messages", &[&reader], "")
        .await
        .is(403, "forbidden");
    assert_eq!(node.call("GET /metrics", &[&reader], "").await.status, 200);
    assert_eq!(
        node.call("GET /api/hubs", &[&sender], "").await.json(),
        serde_json::json!({"hubs": [], "sharded": []})
    );
    let all = basic("all", "all-secret");
    assert_eq!(
        node.call("POST /hubs/fresh/messages", &[&all], "x")
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn whoever_may_not_manage_makes_no_hub_by_sending() {
    let send = [Right::Send].into_iter().collect();
    let key = Key::new("s", "secret", send, KeyScope::UNLIMITED);
    let node = start(options(), vec![key], Arc::new(memory())).await;
    node.call("POST /hubs/fresh/messages", &[&basic("s", "secret")], "x")
        .await
        .is(404, "not_found");
    assert!(node.log.hub("fresh").is_none());
}

// proves U3
#[tokio::test]
async fn a_web_page_of_a_stranger_cannot_use_a_node_without_keys() {
    let node = node().await;
    for header in [
        "origin: http://evil.example",
        "host: evil.example:8080",
        "origin: null",
        // Another server of this machine, with untrusted pages.
        "origin: http://localhost:8080",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
    ] {
        node.call("POST /hubs/h/messages", &[header], "x")
            .await
            .is(403, "forbidden");
        node.call("PUT /api/jobs/j", &[header], "{}")
            .await
            .is(403, "forbidden");
    }
    let own = ["origin: http://localhost", "sec-fetch-site: same-origin"];
    let own = node.call("POST /hubs/h/messages", &own, "x").await;
    assert_eq!(own.status, 201);
}

// proves U3
#[tokio::test]
async fn a_web_page_of_a_stranger_cannot_use_the_key_that_a_browser_remembers() {
    let node = guarded().await;
    let key = basic("all", "all-secret");
    for header in [
        "origin: https://evil.example",
        "origin: null",
        "sec-fetch-site: cross-site",
    ] {
        let refused = node.call("DELETE /api/hubs/h", &[&key, header], "").await;
        refused.is(403, "forbidden");
    }
    let own = [&key[..], "origin: http://localhost"];
    assert_eq!(node.call("GET /api/hubs", &own, "").await.status, 200);
}

// proves U3
#[tokio::test(start_paused = true)]
async fn wrong_keys_are_delayed_more_and_more() {
    let node = guarded().await;
    let started = tokio::time::Instant::now();
    for _ in 0..6 {
        let wrong = basic("all", "wrong!");
        let refused = node.call("GET /api/hubs", &[&wrong], "").await;
        refused.is(401, "unauthorized");
    }
    assert!(started.elapsed() >= std::time::Duration::from_secs(5));
    let key = basic("all", "all-secret");
    let page = node.call("GET /metrics", &[&key], "").await;
    let line = "highwater_http_logins_refused_total 6";
    assert!(
        page.body.lines().any(|found| found == line),
        "{}",
        page.body
    );
}
