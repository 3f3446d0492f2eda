//! Consumer groups, seen and removed.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::SimClock;
use highwater_env::random::Random;
use highwater_hub::groups;
use highwater_log::{
    GroupCoordinator, GroupError, HubName, JoinRequest, Membership, Offset, OffsetAndMetadata,
    OffsetCommit, TopicPartition,
};
use serde_json::json;

use highwater_server::http::{Backend, Options};

use crate::http::node::{memory, node_with_groups, options, start_on};

/// Stores a position as a consumer does that manages its partitions itself.
async fn commit(groups: &groups::Handle, group: &str, partition: u32, offset: i64) {
    let request = OffsetCommit {
        member: Membership {
            group: group.into(),
            generation: -1,
            member: String::new(),
            instance: None,
        },
        offsets: vec![(
            TopicPartition {
                hub: HubName::new("h").unwrap(),
                partition,
            },
            OffsetAndMetadata {
                offset: Offset(offset),
                leader_epoch: -1,
                metadata: String::new(),
            },
        )],
    };
    loop {
        match groups.commit_offsets(request.clone()).await {
            Err(GroupError::Loading) => tokio::task::yield_now().await,
            done => return done.unwrap(),
        }
    }
}

// proves L2
#[tokio::test]
async fn a_group_is_shown_with_what_it_has_left_to_read_and_deleted() {
    let log = Arc::new(memory());
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let options = groups::Options::default();
    let service = groups::Service::new(log.clone(), clock, Random::seeded(1), options);
    let groups = service.handle();
    tokio::spawn(service.run(std::future::pending()));
    let node = node_with_groups(log, Arc::new(groups.clone())).await;
    for _ in 0..3 {
        node.post("/hubs/h/partitions/2/messages", "text/plain", "x")
            .await;
    }
    commit(&groups, "a b", 2, 1).await;

    let listed = node.get("/api/groups").await.json();
    assert_eq!(listed["groups"][0]["group"], "a b");
    let shown = node.get("/api/groups/a%20b").await.json();
    let expected = json!([{"hub": "h", "partition": 2, "offset": 1, "end": 3, "lag": 2}]);
    assert_eq!(shown["positions"], expected);
    // A new member is in the group before the others have answered.
    let joining = tokio::spawn(groups.join(JoinRequest {
        group: "b".into(),
        member: String::new(),
        instance: None,
        client_id: "c".into(),
        client_host: "h".into(),
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(60),
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Default::default())],
        expects_member_id: false,
    }));
    while node.get("/api/groups/b").await.status == 404 {
        tokio::task::yield_now().await;
    }
    node.call("DELETE /api/groups/b", &[], "")
        .await
        .is(409, "in_use");
    joining.abort();

    let deleted = node.call("DELETE /api/groups/a%20b", &[], "").await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    node.get("/api/groups/a%20b").await.is(404, "not_found");
    node.call("DELETE /api/groups/a%20b", &[], "")
        .await
        .is(404, "not_found");
}

// proves L2, U2
#[tokio::test]
async fn positions_are_reset_with_a_preview_and_only_without_members() {
    let log = Arc::new(memory());
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let options = groups::Options::default();
    let service = groups::Service::new(log.clone(), clock, Random::seeded(1), options);
    let groups = service.handle();
    tokio::spawn(service.run(std::future::pending()));
    let node = node_with_groups(log, Arc::new(groups.clone())).await;
    for _ in 0..5 {
        node.post("/hubs/h/partitions/2/messages", "text/plain", "x")
            .await;
    }
    commit(&groups, "g <b>", 2, 3).await;
    let page = node.get("/console/hubs/h").await;
    assert!(page.body.contains("g &lt;b&gt;") && page.body.contains("2 events behind"));

    let path = "/api/groups/g%20%3Cb%3E/reset";
    let reset = async |body: serde_json::Value| {
        let kind = "application/json";
        node.post(path, kind, &body.to_string()).await
    };
    let preview = reset(json!({"hub": "h", "to": "earliest", "dry_run": true}))
        .await
        .json();
    assert_eq!(
        (&preview["again"], &preview["skipped"]),
        (&json!(3), &json!(0))
    );
    let change = json!({"partition": 2, "before": 3, "after": 0, "again": 3, "skipped": 0});
    assert_eq!(preview["positions"][2], change);
    assert_eq!(preview["positions"][0]["before"], json!(null));
    let position = async || {
        let shown = node.get("/api/groups/g%20%3Cb%3E").await.json();
        shown["positions"][0]["offset"].clone()
    };
    assert_eq!(position().await, 3, "a preview changes nothing");
    // Past the end is the end.
    let done = reset(json!({"hub": "h", "partition": 2, "to": 99}))
        .await
        .json();
    let change = json!({"partition": 2, "before": 3, "after": 5, "again": 0, "skipped": 2});
    assert_eq!(done["positions"], json!([change]));
    assert_eq!(position().await, 5);
    let time = json!({"hub": "h", "partition": 2, "to": "2025-01-01T00:00:00Z"});
    assert_eq!(reset(time).await.json()["again"], 5);
    assert_eq!(position().await, 0);

    let to = |to: &str| json!({"hub": "h", "to": to});
    reset(to("yesterday")).await.is(400, "bad_request");
    reset(json!({"hub": "none", "to": 0}))
        .await
        .is(404, "not_found");
    reset(json!({"hub": "h", "partition": 9, "to": 0}))
        .await
        .is(404, "not_found");
    let unknown = node.post(
        "/api/groups/none/reset",
        "application/json",
        r#"{"hub":"h","to":0}"#,
    );
    unknown.await.is(404, "not_found");
    let join = groups.join(JoinRequest {
        group: "g <b>".into(),
        member: String::new(),
        instance: None,
        client_id: "c".into(),
        client_host: "h".into(),
        session_timeout: Duration::from_secs(30),
        rebalance_timeout: Duration::from_secs(30),
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Default::default())],
        expects_member_id: false,
    });
    let joining = tokio::spawn(join);
    while reset(to("latest")).await.status == 200 {
        tokio::task::yield_now().await;
    }
    reset(to("latest")).await.is(409, "in_use");
    let preview = reset(json!({"hub": "h", "to": "latest", "dry_run": true})).await;
    assert_eq!(preview.json()["members"], 1);
    joining.abort();
}

// proves G2
#[tokio::test]
async fn a_description_is_charged_before_the_members_are_copied() {
    let log = Arc::new(memory());
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let service = groups::Service::new(
        log.clone(),
        clock,
        Random::seeded(1),
        groups::Options::default(),
    );
    let groups = service.handle();
    tokio::spawn(service.run(std::future::pending()));
    let backend = Backend {
        groups: Some(Arc::new(groups.clone())),
        ..Backend::new(log)
    };
    let small = Options {
        in_flight_bytes_max: 2 << 20,
        ..options()
    };
    let node = start_on(small, Vec::new(), backend).await;
    // The names of static members count too.
    for (group, instance) in [("modest", 10), ("large", 1 << 20)] {
        let request = JoinRequest {
            group: group.into(),
            member: String::new(),
            instance: Some("i".repeat(instance)),
            client_id: "c".into(),
            client_host: "h".into(),
            session_timeout: Duration::from_secs(10),
            rebalance_timeout: Duration::from_secs(60),
            protocol_type: "consumer".into(),
            protocols: vec![("range".into(), Default::default())],
            expects_member_id: false,
        };
        tokio::spawn(groups.join(request));
        let path = format!("/api/groups/{group}");
        while node.get(&path).await.status == 404 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(node.get("/api/groups/modest").await.status, 200);
    node.get("/api/groups/large").await.is(429, "full");
    node.get("/api/groups").await.is(429, "full");
    assert_eq!(node.get("/api/groups/modest").await.status, 200);
}
