//! Dead letters and circuits over HTTP. proves P4, P5

use serde_json::json;

use crate::processing::receiver::{OK, Receiver, Request};
use crate::processing::world::{QUICK, World};

/// A node whose receiver refuses `bad` events.
async fn refusing() -> (World, Receiver) {
    let receiver = Receiver::start(|request: &Request| match request.body.contains("bad") {
        true => Some("422 Nonsense"),
        false => OK,
    })
    .await;
    let settings = format!(
        "{QUICK}order = \"partition\"\nhandler = {{ url = \"{}\" }}\ncircuit = {{ poison = 100 }}",
        receiver.url()
    );
    let world = World::start(&settings).await;
    world
        .send(&["\"bad 0\"", "\"good\"", "\"bad 2\"", "\"bad 3\""])
        .await;
    world.done().await;
    (world, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_replayed_to_the_failed_handler_and_purged() {
    let (mut world, receiver) = refusing().await;
    let counts = world.json("GET /api/dead-letters", "").await;
    assert_eq!(
        counts["dead_letters"][0],
        json!({"processor": "billing", "hub": "billing.dead", "letters": 3})
    );
    let end = world.json("GET /api/hubs/orders", "").await["places"][0]["end"].clone();

    let replay = "POST /api/dead-letters/billing/replay";
    let dry = world
        .json(replay, "{\"id\":\"orders/0@2\",\"dry_run\":true}")
        .await;
    assert_eq!(
        (&dry["would_replay"], receiver.count()),
        (&json!(["orders/0@2"]), 4)
    );
    let failed = world.json(replay, "{\"id\":\"orders/0@2\"}").await;
    assert_eq!(
        failed["failed"],
        json!([{"id": "orders/0@2", "reason": "status 422"}])
    );
    let shown = world
        .json("GET /api/dead-letters/billing/orders%2F0%402", "")
        .await;
    assert_eq!(
        (
            &shown["replays"],
            shown["attempts"].as_array().unwrap().len()
        ),
        (&json!(1), 2)
    );

    receiver.behave(|_| OK);
    let done = world.json(replay, "{\"reason\":\"NONSENSE\"}").await;
    assert_eq!(done["handled"], 0, "no reason says that");
    let done = world.json(replay, "{\"reason\":\"422\",\"max\":2}").await;
    assert_eq!((&done["handled"], &done["more"]), (&json!(2), &json!(true)));
    let last = receiver.ledger().pop().unwrap();
    assert_eq!(
        (last.id(), last.attempt()),
        ("orders/0@3", 2),
        "with its own id"
    );
    let purged = world.json("POST /api/dead-letters/billing/purge", "").await;
    assert_eq!(purged["purged"], 1);
    let left = world.json("GET /api/dead-letters/billing", "").await;
    assert_eq!(left["letters"], json!([]));
    assert_eq!(
        world.json("GET /api/hubs/orders", "").await["places"][0]["end"],
        end,
        "no other consumer sees a replay"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_fails_again_and_again_is_left_alone() {
    let (mut world, receiver) = refusing().await;
    let replay = "POST /api/dead-letters/billing/replay";
    for _ in 0..3 {
        assert_eq!(
            world.json(replay, "").await["failed"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
    }
    let before = receiver.count();
    assert_eq!(world.json(replay, "").await["failed"], json!([]));
    assert_eq!(receiver.count(), before);
    assert_eq!(
        world.json(replay, "{\"force\":true}").await["failed"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circuit_is_opened_and_closed_by_hand() {
    let (mut world, receiver) = refusing().await;
    let opened = world
        .json("POST /api/circuits/billing/open", "{\"why\":\"release\"}")
        .await;
    assert_eq!(
        (&opened["state"], &opened["why"]),
        (&json!("open"), &json!("release"))
    );
    let before = receiver.count();
    world.send(&["\"good\""]).await;
    let (status, text) = world
        .call("POST /api/dead-letters/billing/replay", "")
        .await;
    assert!(status == 409 && text.contains("have stopped"), "{text}");
    let page = world.call("GET /metrics", "").await.1;
    assert!(
        page.contains("highwater_processor_circuit_open{processor=\"billing\"} 1"),
        "{page}"
    );
    assert!(
        page.contains("highwater_processor_behind_events{processor=\"billing\"} 1"),
        "{page}"
    );
    assert_eq!(receiver.count(), before);
    let closed = world.json("POST /api/circuits/billing/close", "").await;
    assert_eq!(closed["state"], "closed");
    world.done().await;
    assert_eq!(receiver.count(), before + 1);
    let (status, text) = world.call("POST /api/circuits/nobody/close", "").await;
    assert!(
        status == 404 && text.contains("there is no circuit `nobody`"),
        "{text}"
    );
    world.stop().await;
}
