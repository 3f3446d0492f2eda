//! Where a job begins. // proves T14

use highwater_env::random::Random;
use highwater_job::config::Start;
use highwater_job::live::{JobState, Options};
use proptest::prelude::*;

use crate::live::recorder::Numbered;
use crate::live::repeatable::{Case, cases, options, runtime};
use crate::live::world::{World, at, job, live, soon, to_the_end};

/// The rows of a run, without numbers: those of two epochs differ.
async fn rows(case: &Case, start: Start, random: &mut Random) -> Vec<Numbered> {
    let world = World::new(case.seed);
    case.fill(&world).await;
    let options = Options {
        start: Some(start),
        ..options(random)
    };
    let status = world.start(&case.job(), options).ended().await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    world.recorder.everything()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 30, ..ProptestConfig::default() })]

    #[test]
    fn a_start_at_a_time_gives_the_rows_that_an_earlier_start_gave(case in cases(), seconds in 0..60i64) {
        let since = at(seconds * 1000);
        let mut random = Random::seeded(case.seed);
        let (all, later) = runtime().block_on(async {
            let all = rows(&case, Start::Beginning, &mut random).await;
            (all, rows(&case, Start::At(since), &mut random).await)
        });
        // A late event shows its watermark, which may be before the requested start.
        let told = |rows: &[Numbered]| {
            let rows = rows.iter().filter(|row| row.0.0 != "Late" && row.2.0 >= since);
            let mut rows: Vec<_> = rows.map(|row| (row.0.0.clone(), row.2.clone())).collect();
            // Keys with clocks of their own have no order among each other but that in which they were first met.
            if case.has_substreams() {
                rows.sort();
            }
            rows
        };
        prop_assert_eq!(told(&later).len(), later.iter().filter(|row| row.0.0 != "Late").count());
        let (found, expected) = (told(&later), told(&all));
        prop_assert_eq!(found, expected);
    }
}

fn counting(seconds: u32) -> String {
    format!(
        r#"
name = "edited"
sql = """SELECT System.Timestamp() AS at, COUNT(*) AS n INTO out FROM e TIMESTAMP BY t
GROUP BY TumblingWindow(second, {seconds})"""
[inputs.e]
hub = "e"
"#
    )
}

async fn ticking() -> World {
    let world = World::new(3);
    world.hub("e", 1).await;
    for second in 1..=40 {
        world.advance(1_000);
        world
            .send("e", 0, &[format!("{{\"t\":\"{}\"}}", at(second * 1000))])
            .await;
    }
    world
}

async fn to_end(world: &World, text: &str) -> Vec<String> {
    let options = Options {
        start: None,
        ..to_the_end()
    };
    let status = soon(world.start(&job(text), options).ended()).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    status.log.into_iter().map(|line| line.text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_that_changes_nothing_goes_on_and_one_that_does_reads_back() {
    let world = ticking().await;
    let beginning = "start = \"beginning\"\n".to_owned() + &counting(10);
    to_end(&world, &beginning).await;
    assert_eq!(
        world.recorder.rows("out").len(),
        3,
        "windows that end at 10, 20 and 30"
    );

    let spaced = beginning.replace("SELECT", "-- how many\nSELECT   ");
    let said = to_end(&world, &spaced).await;
    assert!(
        said.iter()
            .any(|line| line.contains("resumes from its last checkpoint")),
        "{said:?}"
    );
    assert_eq!(world.recorder.rows("out").len(), 3);

    // Rows up to 40 have been given, so the first window of the new query is the one that ends at 40.
    let said = to_end(&world, &counting(20)).await;
    let why = "because the query is another";
    assert!(said.iter().any(|line| line.contains(why)), "{said:?}");
    world.silence("e", 0).await;
    world.advance(10_000);
    world.silence("e", 0).await;
    to_end(&world, &counting(20)).await;
    let rows = world.recorder.rows("out");
    let last = format!("{{\"at\":\"{}\",\"n\":20}}", at(40_000));
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!(rows[3], last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_has_never_run_starts_now_and_its_first_window_is_complete() {
    let world = ticking().await;
    let options = Options {
        start: None,
        ..live()
    };
    let handle = world.start(&job(&counting(10)), options);
    soon(world.recorder.until_time("out", at(1_000))).await;
    world.advance(30_000);
    let rows = soon(world.recorder.until("out", 1)).await;
    assert_eq!(rows[0], format!("{{\"at\":\"{}\",\"n\":10}}", at(40_000)));
    soon(handle.stop()).await;
}
