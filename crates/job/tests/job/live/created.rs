//! A hub with its producers' timestamps: a job takes the enqueue time as arrival, and nothing else. // proves K4 T1

use highwater_job::live::JobState;
use highwater_log::batch::{BatchBuilder, BatchOptions, NewRecord, TimestampType};
use highwater_log::{HubName, HubSettings, HubSpec, Log};

use crate::live::world::{START_MS, World, at, job, soon, to_the_end};

const ARRIVALS: &str = r#"
name = "arrivals"
sql = "SELECT id, EventEnqueuedUtcTime AS arrived, System.Timestamp() AS at INTO out FROM e"
[inputs.e]
hub = "e"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_arrives_when_the_log_appends_it() {
    let world = World::new(1);
    let mut settings = HubSettings::default();
    settings.timestamps.kind = TimestampType::Create;
    let spec = HubSpec {
        name: HubName::new("e").unwrap(),
        partitions: 1,
        settings,
    };
    world.log.create(spec).await.unwrap();
    let partition = world.log.partition("e", 0).unwrap();
    // The producers' clocks are an hour behind and an hour ahead.
    for (id, skew_ms) in [(0, -3_600_000), (1, 3_600_000), (2, 0)] {
        world.advance(1_000);
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord {
            key: None,
            value: Some(format!("{{\"id\":{id}}}").as_bytes()),
            headers: &[],
        });
        let options = BatchOptions {
            timestamp: Some(START_MS + skew_ms),
            ..BatchOptions::default()
        };
        let batch = builder.build(&options).unwrap();
        partition.append(batch).await.unwrap();
    }
    let status = soon(world.start(&job(ARRIVALS), to_the_end()).ended()).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    let row = |id: i64| {
        let arrived = at(1_000 * (id + 1));
        format!("{{\"id\":{id},\"arrived\":\"{arrived}\",\"at\":\"{arrived}\"}}")
    };
    assert_eq!(world.recorder.rows("out"), [row(0), row(1), row(2)]);
}
