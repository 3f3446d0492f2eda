//! The console's pages of processors, circuits and dead letters.

use std::time::Duration;

use crate::http::node::{Answer, call};
use crate::processing::receiver::{OK, Receiver, Request};
use crate::processing::world::{QUICK, World};

const HTML: &str = "accept: text/html";

async fn page(world: &World, path: &str, headers: &[&str]) -> Answer {
    let headers = [&[HTML], headers].concat();
    call(world.address(), &format!("GET {path}"), &headers, "").await
}

fn has(page: &Answer, parts: &[&str]) {
    assert_eq!(page.status, 200, "{}", page.body);
    for part in parts {
        assert!(page.body.contains(part), "no `{part}` in {}", page.body);
    }
}

/// A receiver that refuses events with a text that no page may take for markup.
async fn refusing(more: &str) -> (World, Receiver) {
    let receiver = Receiver::start(|request: &Request| match request.body.contains("bad") {
        true => Some("422 Nonsense"),
        false => OK,
    })
    .await;
    let handler = format!("handler = {{ url = \"{}\" }}", receiver.url());
    let settings =
        format!("{QUICK}{handler}\norder = \"partition\"\ncircuit = {{ poison = 100 }}\n{more}");
    let world = World::start(&settings).await;
    (world, receiver)
}

/// Waits until the page has the text: counts are sampled every few seconds.
async fn until(world: &World, path: &str, text: &str) -> Answer {
    for _ in 0..200 {
        let answer = page(world, path, &[]).await;
        if answer.status == 200 && answer.body.contains(text) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{path} does not have `{text}`");
}

// proves U2
#[tokio::test(flavor = "multi_thread")]
async fn a_processor_its_circuit_and_its_dead_letters_are_shown_and_escaped() {
    let (mut world, _receiver) = refusing("").await;
    let hostile = "{\"bad\":\"<script>alert(1)</script>\"}";
    world.send(&["1", hostile]).await;
    world.done().await;
    let list = until(
        &world,
        "/console/processors",
        "/console/dead-letters?processor=billing",
    )
    .await;
    has(&list, &["caught up", "/console/hubs/orders", "0 events"]);
    let one = page(&world, "/console/processors/billing", &[]).await;
    has(
        &one,
        &[
            "billing.dead",
            "this node",
            "orders/0@1",
            "2 partitions",
            "Open…",
        ],
    );
    let letters = page(&world, "/console/dead-letters", &[]).await;
    has(
        &letters,
        &[
            "/console/dead-letters/billing/orders%2F0%401",
            "status 422",
            "data-bulk",
        ],
    );
    let letter = page(&world, "/console/dead-letters/billing/orders%2F0%401", &[]).await;
    has(&letter, &["&lt;script&gt;alert(1)", "status 422", "JSON"]);
    assert!(!letter.body.contains("<script>alert"));
    let none = page(&world, "/console/dead-letters/billing/orders%2F0%400", &[]).await;
    assert_eq!(none.status, 404, "{}", none.body);

    let why = r#"{"why":"<img src=x onerror=alert(1)>"}"#;
    world.json("POST /api/circuits/billing/open", why).await;
    let circuits = page(&world, "/console/circuits", &[]).await;
    has(
        &circuits,
        &[
            "Deliveries have stopped",
            "&lt;img src=x",
            "POST /api/circuits/billing/close",
            "They wait until a person resumes",
        ],
    );
    assert!(!circuits.body.contains("<img"));
    world.stop().await;
}

// proves U2
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_filtered_and_shown_page_by_page() {
    let (mut world, _receiver) = refusing("").await;
    let events: Vec<String> = (0..60).map(|n| format!("\"bad {n}\"")).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    world.send(&events).await;
    world.done().await;
    let first = page(&world, "/console/dead-letters?reason=&key=&from=", &[]).await;
    has(&first, &["orders/0@0", "orders/0@49", "rel=\"next\""]);
    assert!(
        !first.body.contains("orders/0@50"),
        "they have the order of their events"
    );
    let (_, rest) = first.body.split_once("rel=\"next\" href=\"").unwrap();
    let (next, _) = rest.split_once('"').unwrap();
    let second = page(&world, &next.replace("&amp;", "&"), &[]).await;
    has(&second, &["orders/0@50", "orders/0@59"]);
    assert!(!second.body.contains("rel=\"next\""));
    let one = page(&world, "/console/dead-letters?id=orders%2F0%407", &[]).await;
    assert!(one.body.contains("@7") && !one.body.contains("orders/0@8"));
    let none = page(&world, "/console/dead-letters?reason=no+such", &[]).await;
    has(&none, &["No dead letter matches the filter"]);
    let wrong = page(&world, "/console/dead-letters?from=yesterday", &[]).await;
    has(&wrong, &["`yesterday` is no time"]);

    let both = r#"{"ids":["orders/0@3","orders/0@5"],"dry_run":true}"#;
    let purge = "POST /api/dead-letters/billing/purge";
    let dry = world.json(purge, both).await;
    assert_eq!(dry["would_purge"].as_array().unwrap().len(), 2);
    let done = world.json(purge, &both.replace("true", "false")).await;
    assert_eq!(done["purged"], 2);
    world.stop().await;
}

// proves U3
#[tokio::test(flavor = "multi_thread")]
async fn a_key_sees_only_what_it_may_read() {
    let keys = "[[keys]]\nname = \"root\"\nsecret = \"root-secret\"\n\
        rights = [\"send\", \"listen\", \"manage\", \"deploy\"]\n\
        [[keys]]\nname = \"other\"\nsecret = \"other-secret\"\nhubs = [\"orders\"]\nrights = [\"listen\"]\n";
    let (mut world, _receiver) = refusing(keys).await;
    let root = "authorization: Bearer root:root-secret";
    let other = "authorization: Bearer other:other-secret";
    let sent = "POST /hubs/orders/partitions/0/messages";
    let sent = call(world.address(), sent, &[root], "\"bad 1\"").await;
    assert!(sent.status < 300, "{}", sent.body);
    for path in [
        "/console/processors",
        "/console/circuits",
        "/console/dead-letters",
    ] {
        let mine = page(&world, path, &[root]).await;
        has(&mine, &["billing"]);
        let theirs = page(&world, path, &[other]).await;
        assert_eq!(theirs.status, 200);
        assert!(!theirs.body.contains("billing"), "{path}: {}", theirs.body);
    }
    for path in [
        "/console/processors/billing",
        "/console/dead-letters/billing/orders%2F0%400",
    ] {
        let theirs = page(&world, path, &[other]).await;
        assert_eq!(theirs.status, 403, "{path}: {}", theirs.body);
    }
    world.stop().await;
}
