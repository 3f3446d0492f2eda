//! A cluster with the features of the emulator of Azure Event Hubs: old versions, no numbers of producers, no
//! transactions, no settings of topics.
// proves X1

use highwater_kafka::client::{Options, Profile, Remote};
use highwater_log::{AdminError, AppendError, GroupCoordinator, Isolation, Log, Offset};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use crate::cluster::*;
use crate::proxy::ProxyAction;

const OFFERED: [(ApiKey, i16, i16); 15] = [
    (ApiKey::Produce, 3, 7),
    (ApiKey::Fetch, 4, 6),
    (ApiKey::ListOffsets, 1, 2),
    (ApiKey::Metadata, 0, 5),
    (ApiKey::OffsetCommit, 0, 3),
    (ApiKey::OffsetFetch, 0, 3),
    (ApiKey::FindCoordinator, 0, 1),
    (ApiKey::JoinGroup, 0, 2),
    (ApiKey::Heartbeat, 0, 1),
    (ApiKey::LeaveGroup, 0, 1),
    (ApiKey::SyncGroup, 0, 1),
    (ApiKey::DescribeGroups, 0, 1),
    (ApiKey::ListGroups, 0, 1),
    (ApiKey::ApiVersions, 0, 0),
    (ApiKey::CreateTopics, 0, 3),
];

/// Closes the connection of a client that sends anything else.
fn offer_old_versions(cluster: &TestCluster) {
    cluster.proxy.script(|head| {
        let offered = OFFERED.iter().find(|(key, ..)| head.is(*key));
        match offered {
            Some((ApiKey::ApiVersions, ..)) => {
                let keys = OFFERED.iter().map(|(key, min, max)| {
                    ApiVersion::default()
                        .with_api_key(*key as i16)
                        .with_min_version(*min)
                        .with_max_version(*max)
                });
                let response = ApiVersionsResponse::default().with_api_keys(keys.collect());
                head.respond::<ApiVersionsRequest>(&response)
            }
            Some((_, min, max)) if (*min..=*max).contains(&head.version) => ProxyAction::Forward,
            _ => ProxyAction::Drop,
        }
    });
}

async fn event_hubs(cluster: &TestCluster) -> Remote {
    offer_old_versions(cluster);
    connect(Options {
        profile: Profile::EventHubs,
        ..cluster.options()
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn records_are_appended_read_and_awaited() {
    let cluster = cluster().await;
    let remote = event_hubs(&cluster).await;
    remote.create(spec("h", 2)).await.unwrap();
    let partition = remote.partition("h", 1).unwrap();
    assert_eq!(append(&partition, &["a", "b"]).await, 0);
    let numbered = partition.append(batch(&["c"], None, false)).await;
    assert_eq!(numbered.unwrap().offset, Offset(2));
    let fetched = partition.read(Offset(0), 1 << 20, Isolation::Uncommitted);
    let values = contents(&fetched.await.unwrap());
    assert_eq!(values.len(), 3);
    let behind = cluster.log.partition("h", 1).unwrap();
    let waiting = partition.wait_past(Offset(3), Isolation::Uncommitted);
    let waiting = tokio::spawn(waiting);
    append(&behind, &["d"]).await;
    waiting.await.unwrap();
    assert_eq!(partition.fetch_bounds().await.unwrap().end, Offset(4));
    let groups = GroupCoordinator::list(&remote).await;
    assert!(groups.is_empty());
}

#[tokio::test]
async fn what_event_hubs_does_not_have_is_refused() {
    let cluster = cluster().await;
    let remote = event_hubs(&cluster).await;
    let hub = remote.create(spec("h", 1)).await.unwrap();
    let changed = remote.change(&name("h"), hub.settings.clone()).await;
    assert!(
        matches!(changed, Err(AdminError::Settings(_))),
        "{changed:?}"
    );
    let claimed = remote.claim("h", 0).await.err();
    let refused = matches!(claimed, Some(AppendError::Stopped { .. }));
    assert!(refused, "{claimed:?}");
}
