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

use crate::http::node::{memory, node_with_groups};

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
    // Somebody who joins is in the group before the others have answered.
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
