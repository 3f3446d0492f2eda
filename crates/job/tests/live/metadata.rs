//! What a hub adds to its events.

use highwater_job::live::JobState;

use crate::world::{World, at, job, live, soon};

const STAR: &str = r#"
name = "star"
sql = "SELECT * INTO out FROM e PARTITION BY PartitionId"
[inputs.e]
hub = "e"
"#;

// proves S1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_star_shows_what_the_hub_adds_and_it_beats_fields_of_the_event() {
    let world = World::new(3);
    world.hub("e", 2).await;
    world.advance(1_500);
    let event = r#"{"PartitionId":"mine","n":7}"#;
    world.send("e", 1, &[event.to_owned()]).await;
    let came = at(world.now_ms());
    let handle = world.start(&job(STAR), live());
    world.advance(10_000);
    let rows = soon(world.recorder.until("out", 1)).await;
    let expected = format!(
        r#"{{"PartitionId":1,"n":7,"EventProcessedUtcTime":"{came}","EventEnqueuedUtcTime":"{came}"}}"#
    );
    assert_eq!(rows, [expected]);
    assert_eq!(soon(handle.stop()).await.state, JobState::Stopped);
}
