//! Golden cases over topics of a cluster: the rows of the same events in hubs of a node with a log of its own. The
//! topics are inputs of type `kafka`, or hubs of a node whose log is the cluster. // proves X1, X4

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_connect::{ClusterRef, ClusterSettings};
use highwater_env::disk;
use highwater_job::Job;
use highwater_job::config::{ArrivalTime, JobFile, KafkaInput};
use highwater_job::live::{AtEnd, JobState, Options};
use highwater_log::batch::TimestampType;
use highwater_time::Duration;

use crate::live::world::{World, soon, to_the_end};

/// Every so many cases of these folders are run.
const SAMPLE: usize = 5;
const FOLDERS: [&str; 6] = [
    "aggregates",
    "analytic",
    "joins",
    "patterns",
    "time",
    "windows",
];

fn case_folders() -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let mut folders = Vec::new();
    for folder in FOLDERS {
        let mut found = disk::list(cases.join(folder)).unwrap();
        found.sort();
        folders.extend(found.into_iter().step_by(SAMPLE));
    }
    folders
}

/// Where a job reads the events.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    Hubs,
    /// Of `type = "kafka"`.
    Topics,
    /// Of a node whose log is the cluster.
    HubsOverCluster,
}

const SOURCES: [Source; 3] = [Source::Hubs, Source::Topics, Source::HubsOverCluster];

/// The job, if it reads only lines of JSON.
fn live_job(mut file: JobFile, source: Source) -> Option<Job> {
    // The events are of other days than the clock of the logs.
    file.time.early_arrival = None;
    file.time.late_arrival = Duration::from_secs(10 * 365 * 86_400);
    for input in &mut file.inputs {
        let [path] = &input.paths[..] else {
            return None;
        };
        if input.reference || path.extension()? != "jsonl" {
            return None;
        }
        input.paths.clear();
        input.arrival = None;
        input.partition = None;
        input.hubs = vec![input.name.clone()];
        input.kafka = (source == Source::Topics).then(|| KafkaInput {
            cluster: ClusterRef::Named(ClusterSettings::new(vec!["cluster:9092".into()])),
            arrival: ArrivalTime::LogAppend,
            transactions: true,
            journal: None,
            clock_margin: std::time::Duration::ZERO,
        });
    }
    if source == Source::HubsOverCluster {
        file.over_cluster(true, |_| ArrivalTime::LogAppend);
    }
    Job::new(file).ok()
}

/// The rows by source; `None` if the case has other inputs.
async fn rows(folder: &Path) -> Option<[Vec<String>; 3]> {
    let file = JobFile::load(folder).ok()?;
    let jobs = SOURCES.map(|source| live_job(file.clone(), source));
    let world = World::new(0);
    for input in &file.inputs {
        world.hub(&input.name, 1).await;
        let topic = world
            .cluster
            .topic(&input.name, 1, TimestampType::LogAppend);
        topic.await;
        let text = disk::read_to_string(&input.paths[0]).ok()?;
        for line in text.lines().filter(|line| !line.is_empty()) {
            world.advance(1);
            let event = [line.to_owned()];
            world.send(&input.name, 0, &event).await;
            world.cluster.send(&input.name, 0, &event).await;
        }
    }
    let mut all = Vec::new();
    for job in jobs {
        let own = world.afresh();
        let job = Arc::new(job?);
        let options = Options {
            until_end: Some(AtEnd::TimeEnds),
            ..to_the_end()
        };
        let status = soon(own.start(&job, options).ended()).await;
        assert_eq!(
            status.state,
            JobState::Finished,
            "{folder:?} {:?}",
            status.log
        );
        let numbered = own.recorder.everything();
        all.push(numbered.iter().map(|row| format!("{row:?}")).collect());
    }
    all.try_into().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn golden_cases_over_topics_give_the_rows_of_hubs() {
    let (mut cases, mut count) = (0, 0);
    for folder in case_folders() {
        let Some([hubs, topics, over_cluster]) = rows(&folder).await else {
            continue;
        };
        assert_eq!(topics, hubs, "{}", folder.display());
        assert_eq!(over_cluster, hubs, "{}", folder.display());
        cases += 1;
        count += hubs.len();
    }
    assert!(cases > 30 && count > 100, "{cases} cases, {count} rows");
}
