//! The only writer of a partition, fenced by the next one.
// proves X1

use std::time::Duration;

use highwater_kafka::client::{Options, Remote};
use highwater_log::{AppendError, Isolation, Log, Offset, Partition, Producer, replay};
use kafka_protocol::messages::ApiKey;

use crate::cluster::*;
use crate::proxy::ProxyAction;

/// The values that a replay sees, markers left out.
async fn replayed(partition: &dyn Partition) -> Vec<String> {
    let mut values = Vec::new();
    let read = replay(partition, 1 << 20, |record| {
        values.push(String::from_utf8_lossy(record.value.unwrap()).into_owned());
        Ok::<_, std::convert::Infallible>(())
    });
    read.await.unwrap();
    values
}

/// Two owners of a new hub, one after the other and back.
pub(crate) async fn check_owners(first: &Remote, second: &Remote, hub: &str) {
    let old = first.claim(hub, 0).await.unwrap().unwrap();
    append(&old, &["a", "b"]).await;
    // Batches with numbers of their own get those of the owner.
    let own = Producer { id: 77, epoch: 0 };
    let numbered = old.append(batch(&["c"], Some((own, 0)), false));
    numbered.await.unwrap();

    let new = second.claim(hub, 0).await.unwrap().unwrap();
    assert_eq!(replayed(&*new).await, ["a", "b", "c"]);
    let refused = old.append_records(&[value("zombie")]).await;
    let fenced = matches!(refused, Err(AppendError::Fenced { .. }));
    assert!(fenced, "{refused:?}");
    let again = old.append_records(&[value("zombie")]).await;
    assert_eq!(again, refused, "the claim is over");
    append(&new, &["d"]).await;
    assert_eq!(replayed(&*new).await, ["a", "b", "c", "d"]);

    let back = first.claim(hub, 0).await.unwrap().unwrap();
    append(&back, &["e"]).await;
    assert!(new.append_records(&[value("zombie")]).await.is_err());
    assert_eq!(replayed(&*back).await, ["a", "b", "c", "d", "e"]);
    assert!(first.claim(hub, 1).await.unwrap().is_none());
    assert!(first.claim("none", 0).await.unwrap().is_none());
}

#[tokio::test]
async fn a_new_owner_fences_the_old_one_and_sees_all_that_it_wrote() {
    let cluster = cluster().await;
    let first = cluster.with_hub("journal", 1).await;
    let second = cluster.remote().await;
    check_owners(&first, &second, "journal").await;
    assert_eq!(stored(&cluster, "journal", 0).await.len(), 5);
}

/// An owner whose append has an unknown outcome claims again, and then the outcome is known.
#[tokio::test]
async fn nothing_follows_an_append_that_failed() {
    let cluster = cluster().await;
    cluster.log.create(spec("journal", 1)).await.unwrap();
    let remote = connect(Options {
        patience: Duration::from_millis(200),
        ..cluster.options()
    })
    .await
    .unwrap();
    let partition = remote.claim("journal", 0).await.unwrap().unwrap();
    append(&partition, &["a"]).await;
    cluster.proxy.script(|head| match head.is(ApiKey::Produce) {
        true => ProxyAction::DropResponse,
        false => ProxyAction::Forward,
    });
    let (b, c) = (
        partition.append_records(&[value("b")]),
        partition.append(batch(&["c"], None, false)),
    );
    let b = b.await;
    assert!(
        matches!(b, Err(AppendError::OutcomeUnknown { .. })),
        "{b:?}"
    );
    assert!(c.await.is_err());
    cluster.proxy.script(|_| ProxyAction::Forward);
    assert!(partition.append_records(&[value("d")]).await.is_err());

    let partition = remote.claim("journal", 0).await.unwrap().unwrap();
    let seen = replayed(&*partition).await;
    assert!(seen.starts_with(&["a".to_owned()]), "{seen:?}");
    append(&partition, &["e"]).await;
    let after = [seen, vec!["e".to_owned()]].concat();
    assert_eq!(replayed(&*partition).await, after);
    let bounds = partition.fetch_bounds().await.unwrap();
    assert_eq!(bounds.visible(Isolation::Committed), bounds.end);
    assert!(bounds.end > Offset(0));
}

/// A claim is renewed, so that the cluster does not forget its epoch.
#[tokio::test]
async fn a_claim_lasts_over_its_renewals() {
    let cluster = cluster().await;
    cluster.log.create(spec("journal", 1)).await.unwrap();
    let remote = connect(Options {
        renewal: Duration::from_millis(20),
        ..cluster.options()
    });
    let remote = remote.await.unwrap();
    let owner = remote.claim("journal", 0).await.unwrap().unwrap();
    let renewals = || cluster.proxy.count(ApiKey::EndTxn);
    let before = renewals();
    while renewals() < before + 3 {
        tokio::task::yield_now().await;
    }
    append(&owner, &["a"]).await;
    let other = cluster.remote().await;
    let next = other.claim("journal", 0).await.unwrap().unwrap();
    append(&next, &["b"]).await;
    let fenced = owner.append_records(&[value("zombie")]).await;
    assert!(matches!(fenced, Err(AppendError::Fenced { .. })));
    assert_eq!(replayed(&*next).await, ["a", "b"]);
}
