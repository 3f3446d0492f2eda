//! Reading, and asking for everything else, from brokers that break off, lie or are silent.
// proves L6 X1

use std::time::Duration;

use bytes::Bytes;
use highwater_kafka::client::{Options, Remote};
use highwater_log::{Isolation, Log, Offset, ReadError};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse};

use crate::proxy::{Act, Head};
use crate::world::*;

fn fetched(head: Head, data: PartitionData) -> Act {
    let topic = FetchableTopicResponse::default().with_partitions(vec![data]);
    head.say::<FetchRequest>(&FetchResponse::default().with_responses(vec![topic]))
}

async fn read(remote: &Remote) -> Result<Vec<String>, ReadError> {
    let partition = remote.partition("h", 0).unwrap();
    let read = partition.read(Offset(0), 1 << 20, Isolation::Uncommitted);
    let found = contents(&read.await?).into_iter();
    Ok(found.map(|(_, _, value)| value).collect())
}

async fn with_records() -> (World, Remote) {
    let world = world().await;
    let remote = world.with_hub("h", 1).await;
    append(&remote.partition("h", 0).unwrap(), &["a", "b"]).await;
    (world, remote)
}

#[tokio::test]
async fn a_read_is_made_again_when_its_answer_breaks_off() {
    let (world, remote) = with_records().await;
    for act in [Act::Cut, Act::Lose, Act::LoseHalf] {
        world.proxy.first(ApiKey::Fetch, 2, move |_| act.clone());
        assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
    }
}

#[tokio::test]
async fn lengths_that_lie_end_their_connection_and_nothing_else() {
    let (world, remote) = with_records().await;
    // Of a frame: too long, negative, too short.
    for lie in [
        &[0x7F, 0xFF, 0xFF, 0xFF][..],
        &[0x80, 0, 0, 0],
        &[0, 0, 0, 3, 0, 0, 0],
    ] {
        let lie = Bytes::from_static(lie);
        world
            .proxy
            .first(ApiKey::Fetch, 2, move |_| Act::Babble(lie.clone()));
        assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
    }
    // Of an array in an answer that is otherwise none: the end of the header, ten bytes, and the claim to
    // have four thousand million elements.
    world.proxy.first(ApiKey::Fetch, 2, |head| {
        let mut body = vec![0; 11];
        body.extend([0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
        head.say_raw(&body)
    });
    assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn an_answer_to_something_else_is_none() {
    let (world, remote) = with_records().await;
    let other = Bytes::from_static(&[0, 0, 0, 4, 0x55, 0x55, 0x55, 0x55]);
    world
        .proxy
        .first(ApiKey::Fetch, 1, move |_| Act::Babble(other.clone()));
    assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_broker_that_is_silent_is_given_up() {
    let (world, _) = with_records().await;
    let options = Options {
        request_timeout: Duration::from_millis(300),
        ..world.options()
    };
    let remote = connect(options).await.unwrap();
    world
        .proxy
        .first(ApiKey::Fetch, 2, |_| Act::Babble(Bytes::new()));
    assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn damage_is_told_and_not_handed_on() {
    let (world, remote) = with_records().await;
    let mut damaged = batch(&["a"], None, false).to_bytes().to_vec();
    if let Some(last) = damaged.last_mut() {
        *last ^= 1;
    }
    let damaged = Bytes::from(damaged);
    world.proxy.first(ApiKey::Fetch, 1, move |head| {
        let data = PartitionData::default().with_high_watermark(2);
        fetched(head, data.with_records(Some(damaged.clone())))
    });
    let told = read(&remote).await.unwrap_err();
    assert!(
        matches!(told, ReadError::Damaged { position: 0, .. }),
        "{told}"
    );
}

#[tokio::test]
async fn a_hub_that_a_broker_has_not_heard_of_yet_is_not_taken_for_deleted() {
    let (world, remote) = with_records().await;
    for code in [
        Code::UnknownTopicOrPartition,
        Code::UnknownTopicId,
        Code::NotLeaderOrFollower,
    ] {
        world.proxy.first(ApiKey::Fetch, 2, move |head| {
            fetched(head, PartitionData::default().with_error_code(code.code()))
        });
        assert_eq!(read(&remote).await.unwrap(), ["a", "b"]);
    }
}

#[tokio::test]
async fn who_waits_through_an_outage_is_woken_after_it() {
    let (world, remote) = with_records().await;
    let partition = remote.partition("h", 0).unwrap();
    world.proxy.script(|_| Act::Cut);
    let waiting = tokio::spawn(partition.wait_past(Offset(2), Isolation::Committed));
    let inner = world.log.partition("h", 0).unwrap();
    append(&inner, &["c"]).await;
    while world.proxy.count(ApiKey::ApiVersions) < 5 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    world.proxy.script(|_| Act::Forward);
    waiting.await.unwrap();
    assert_eq!(partition.bounds().end, Offset(3));
}

#[tokio::test]
async fn many_partitions_wait_with_few_requests() {
    let world = world().await;
    world.log.create(spec("h", 40)).await.unwrap();
    let options = Options {
        poll: Duration::from_millis(50),
        ..world.options()
    };
    let remote = connect(options).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..40 {
        let partition = remote.partition("h", number).unwrap();
        waiting.spawn(async move {
            partition.wait_past(Offset(0), Isolation::Committed).await;
            number
        });
    }
    // Until all of them have come and gone into one poll or another, and then as long again.
    for polls in [8, 16] {
        while world.proxy.count(ApiKey::Fetch) < polls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let mut woken = Vec::new();
    for number in (0..40).rev() {
        append(&world.log.partition("h", number).unwrap(), &["x"]).await;
        woken.push(waiting.join_next().await.unwrap().unwrap());
    }
    assert_eq!(woken, (0..40).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_hub_that_others_make_or_grow_is_seen_by_itself() {
    let world = world().await;
    let remote = world.remote().await;
    assert!(remote.hub("h").is_none());
    world.log.create(spec("h", 2)).await.unwrap();
    while remote.hub("h").is_none_or(|hub| hub.partitions != 2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // One that turns out to exist at once.
    world.log.create(spec("other", 1)).await.unwrap();
    let exists = remote.create(spec("other", 1)).await.unwrap_err();
    assert_eq!(exists, highwater_log::AdminError::Exists(name("other")));
    assert!(remote.partition("other", 0).is_some());
    world.log.grow(&name("h"), 3).await.unwrap();
    while remote.partition("h", 2).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_an_error_in_time() {
    let options = Options {
        patience: Duration::from_millis(100),
        ..Options::new(["127.0.0.1:1"])
    };
    let error = connect(options).await.err().unwrap();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    for server in ["nowhere", "host:port"] {
        let error = connect(Options::new([server])).await.err().unwrap();
        assert!(error.to_string().contains(server), "{error}");
    }
}
