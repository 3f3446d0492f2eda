//! Writes rows to a queue through crashes, and checks its messages. // proves S3 S4

use std::sync::Arc;

use highwater_env::random::Random;
use highwater_env::{SimClock, SimDisk};
use highwater_log::MemoryLog;
use highwater_queue::{Options, Settings, SubQueue};
use proptest::prelude::*;

use super::super::testing::*;
use super::*;

async fn queues(settings: Settings) -> Queues {
    let log = MemoryLog::new(|| 0);
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let options = Options::default();
    let (queues, _) = Queues::open(Arc::new(log), clock, Random::seeded(1), options).await;
    queues.create("orders", settings).await.unwrap();
    queues
}

fn open(queues: &Queues, session: Option<&str>) -> Box<dyn Endpoint> {
    let output = QueueOutput {
        queue: "orders".into(),
        session: session.map(str::to_owned),
    };
    let mut context = OutputContext::new("job", "out", Arc::new(SimDisk::new(0)));
    context.queues = Some(queues.clone());
    output.open(names(), &context).unwrap()
}

async fn contents(queues: &Queues, sub_queue: SubQueue) -> Vec<Content> {
    let queue = queues.get("orders").unwrap();
    let peeked = queue.peek(sub_queue, 0, 1000).await.unwrap();
    let contents = peeked.into_iter();
    contents
        .map(|peeked| (*peeked.message.content).clone())
        .collect()
}

fn line(row: &Row) -> String {
    let writer = JsonWriter::new(names());
    let mut line = Vec::new();
    writer.write_rows(&rows(0, std::slice::from_ref(row)).chunk, 0..1, &mut line);
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_row_is_a_message_once_and_in_order(input in any_rows(60), steps in any_steps()) {
        let found = block_on(async {
            let queues = queues(Settings::default()).await;
            play(&input, &steps, || open(&queues, None)).await;
            contents(&queues, SubQueue::Main).await
        });
        let bodies: Vec<_> = found.iter().map(|content| content.body.clone()).collect();
        let expected: Vec<_> = input.iter().map(|row| Bytes::from(line(row))).collect();
        prop_assert_eq!(bodies, expected);
        for (number, content) in found.iter().enumerate() {
            let id = format!("job/out/{number}");
            prop_assert_eq!(content.id.as_deref(), Some(id.as_str()));
        }
    }
}

fn row(device: Option<i64>) -> Row {
    Row {
        seconds: 0,
        device,
        text: "x".into(),
    }
}

#[test]
fn a_start_from_the_beginning_uses_no_id_again() {
    let found = block_on(async {
        let queues = queues(Settings::default()).await;
        for _ in 0..2 {
            play(&[row(Some(1)), row(Some(2))], &[], || open(&queues, None)).await;
        }
        contents(&queues, SubQueue::Main).await
    });
    let ids: Vec<_> = found
        .iter()
        .filter_map(|content| content.id.as_deref())
        .collect();
    assert_eq!(ids, ["job/out/0", "job/out/1", "job/out/2", "job/out/3"]);
}

#[test]
fn a_column_is_the_session_and_a_row_without_one_is_a_dead_letter() {
    let settings = Settings {
        sessions: true,
        ..Settings::default()
    };
    let (found, dead) = block_on(async {
        let queues = queues(settings).await;
        play(&[row(Some(7)), row(None)], &[], || {
            open(&queues, Some("Device"))
        })
        .await;
        let found = contents(&queues, SubQueue::Main).await;
        (found, contents(&queues, SubQueue::DeadLetters).await)
    });
    assert_eq!(found[0].session.as_deref(), Some("7"));
    assert_eq!((found.len(), dead.len()), (1, 1));
}

#[test]
fn a_queue_that_is_not_there_or_full_is_told_apart() {
    block_on(async {
        let queues = queues(Settings {
            bytes_max: 200,
            ..Settings::default()
        })
        .await;
        let mut endpoint = open(&queues, None);
        endpoint.resume(None).await.unwrap();
        endpoint.write(&rows(0, &[row(None)])).await.unwrap();
        let full = endpoint.write(&rows(1, &[row(None)])).await.unwrap_err();
        assert!(matches!(full, EndpointError::Unavailable { .. }), "{full}");
        queues.delete("orders").await.unwrap();
        let gone = endpoint.resume(None).await.unwrap_err();
        assert!(matches!(gone, EndpointError::Unfit { .. }), "{gone}");
    });
}

#[test]
fn a_long_name_leaves_the_number_whole() {
    let id = message_id(&format!("job/{}", "ä".repeat(100)), 17);
    assert!(id.len() <= ID_BYTES_MAX && id.ends_with("ä/17"), "{id}");
    assert_eq!(message_id("job/out", 17), "job/out/17");
}
