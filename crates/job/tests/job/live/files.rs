//! Files and folders that a job follows. // proves S3 S4 T8

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flate2::write::GzEncoder;
use highwater_env::disk;
use highwater_env::random::Random;
use highwater_job::Job;
use highwater_job::config::JobFile;
use highwater_job::live::{Handle, JobState, Options, delete_file_hubs};
use highwater_log::Log;

use crate::live::world::{World, live, soon, to_the_end};

/// A folder that a job follows, and its files.
struct Folder {
    world: World,
    at: tempfile::TempDir,
}

impl Folder {
    fn new(seed: u64) -> Folder {
        Folder {
            world: World::new(seed),
            at: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    fn job(&self, sql: &str, more: &str) -> Arc<Job> {
        let path = self.at.path().display();
        let text = format!(
            "name = \"files\"\nstart = \"beginning\"\nsql = \"{sql}\"\n[inputs.f]\npath = \"{path}\"\n{more}"
        );
        let mut file = JobFile::parse(&text, "job.toml").unwrap();
        file.follow_files().unwrap();
        Arc::new(Job::new(file.resolve(self.at.path())).unwrap())
    }

    /// Puts a file in place as a whole.
    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let mut file = disk::create_atomic(self.path(name)).unwrap();
        file.write_all(bytes.as_ref()).unwrap();
        file.commit().unwrap();
    }

    /// Appends `text` to a file; its stamp changes with its length.
    fn grow(&self, name: &str, text: &str) {
        let path = self.path(name);
        let before = disk::read_to_string(&path).unwrap_or_default();
        self.put(name, before + text);
    }

    fn remove(&self, name: &str) {
        use highwater_env::Disk;
        highwater_env::RealDisk
            .remove_file(&self.path(name))
            .unwrap();
    }

    /// The rows of `out` once there are so many, while time passes.
    async fn rows(&self, handle: &Handle, count: usize) -> Vec<String> {
        self.until(handle, |_| self.world.recorder.rows("out").len() >= count)
            .await;
        self.world.recorder.rows("out")
    }

    async fn until_said(&self, handle: &Handle, words: &str) {
        let said = |log: &[String]| log.iter().any(|line| line.contains(words));
        self.until(handle, |handle| said(&log(handle))).await;
    }

    async fn until(&self, handle: &Handle, holds: impl Fn(&Handle) -> bool) {
        soon(async {
            while !holds(handle) {
                let state = handle.status().state;
                assert!(!state.is_over(), "{state:?}");
                self.world.advance(1);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
}

fn log(handle: &Handle) -> Vec<String> {
    let log = handle.status().log.into_iter();
    log.map(|line| line.text).collect()
}

fn options() -> Options {
    Options {
        poll_interval: Duration::from_millis(2),
        ..live()
    }
}

fn resume() -> Options {
    Options {
        start: None,
        ..options()
    }
}

fn lines(ids: std::ops::Range<i64>) -> String {
    ids.map(|id| format!("{{\"id\":{id}}}\n")).collect()
}

fn ids(ids: impl IntoIterator<Item = i64>) -> Vec<String> {
    let ids = ids.into_iter();
    ids.map(|id| format!("{{\"id\":{id}}}")).collect()
}

const IDS: &str = "SELECT id INTO out FROM f";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_appears_in_a_folder_is_read_once_and_in_order() {
    let folder = Folder::new(1);
    let job = folder.job(IDS, "");
    folder.put("b.jsonl", lines(2..4));
    folder.put("a.jsonl", lines(0..2));
    folder.put(".hidden.jsonl", lines(90..91));
    folder.put("notes.txt", "nothing");
    let handle = folder.world.start(&job, options());
    assert_eq!(folder.rows(&handle, 4).await, ids(0..4), "by name");
    // One that grows is followed, line by line.
    folder.grow("a.jsonl", "{\"id\":4}\n{\"id\"");
    assert_eq!(folder.rows(&handle, 5).await, ids(0..5));
    folder.grow("a.jsonl", ":5}\n");
    assert_eq!(folder.rows(&handle, 6).await, ids(0..6));
    soon(handle.stop()).await;

    // Events that arrived while the job was down.
    folder.grow("b.jsonl", &lines(6..7));
    folder.put("c.jsonl", lines(7..8));
    let handle = folder.world.start(&job, resume());
    assert_eq!(folder.rows(&handle, 8).await, ids(0..8));
    assert_eq!(handle.status().alarms, [""; 0]);
    soon(handle.stop()).await;

    // A later replay of the log needs no files.
    for name in ["a.jsonl", "b.jsonl", "c.jsonl"] {
        folder.remove(name);
    }
    let later = folder.world.afresh();
    let status = soon(later.start(&job, to_the_end()).ended()).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    let rows = later.recorder.rows("out");
    assert_eq!(rows[..], ids(0..8)[..rows.len()]);
    assert!(rows.len() >= 7, "all that time has passed");
}

fn packed(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_all_formats_are_one_input() {
    let folder = Folder::new(2);
    let sql = "SELECT CAST(id AS bigint) AS id INTO out FROM f";
    let handle = folder.world.start(&folder.job(sql, ""), options());
    folder.put("a.json", "[{\"id\":0},\n {\"id\":1}]");
    folder.rows(&handle, 2).await;
    folder.put("b.csv", "x,id\n,2\n");
    folder.rows(&handle, 3).await;
    folder.put("c.jsonl.gz", packed(&lines(3..5)));
    folder.rows(&handle, 5).await;
    folder.grow("b.csv", "\"\n\",5\n");
    folder.rows(&handle, 6).await;
    folder.put("d.csv.gz", packed("id\n6"));
    folder.rows(&handle, 7).await;
    // Its last line has no end, and is taken when nothing has come for a while.
    folder.put("e.jsonl", "{\"id\":7}\n{\"id\":8}");
    folder.rows(&handle, 8).await;
    folder.world.advance(61_000);
    assert_eq!(folder.rows(&handle, 9).await, ids(0..9));
    soon(handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_file_knows_of_itself_is_shown_and_its_fields_come_first() {
    let folder = Folder::new(3);
    let sql = "SELECT id, EventEnqueuedUtcTime AS e, GetMetadataPropertyValue(f, 'BlobName') AS n INTO out FROM f";
    let sql = sql.replace("GetMetadataPropertyValue(f, 'BlobName')", "BlobName");
    let handle = folder.world.start(&folder.job(&sql, ""), options());
    folder.put("a.jsonl", "{\"id\":1,\"EventEnqueuedUtcTime\":\"own\"}\n");
    let rows = folder.rows(&handle, 1).await;
    assert_eq!(rows, ["{\"id\":1,\"e\":\"own\",\"n\":\"a.jsonl\"}"]);
    soon(handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_changed_behind_the_back_of_the_job_are_told_of() {
    let folder = Folder::new(4);
    let handle = folder.world.start(&folder.job(IDS, ""), options());
    folder.put("a.jsonl", lines(0..3));
    folder.put("w.json", "[{\"id\":3}]");
    folder.rows(&handle, 4).await;
    // Cut short and written anew.
    folder.put("a.jsonl", lines(4..5));
    folder.rows(&handle, 5).await;
    folder
        .until_said(&handle, "a.jsonl was replaced by another file")
        .await;
    // Of the same length, and with another beginning.
    folder.put("a.jsonl", lines(5..6));
    folder.rows(&handle, 6).await;
    // A file that is read as a whole, replaced by another.
    folder.put("w.json", "[{\"id\":6},{}]");
    folder.rows(&handle, 8).await;
    folder
        .until_said(&handle, "w.json was replaced by another file")
        .await;
    // Touched, and nothing else.
    folder.put("w.json", "[{\"id\":6},{}]");
    folder.put("b.jsonl", "{\"id\":7}\n{\"id\":8");
    folder.rows(&handle, 9).await;
    folder.remove("b.jsonl");
    folder.remove("a.jsonl");
    folder
        .until_said(
            &handle,
            "b.jsonl is gone and was not read completely: at least 7 bytes",
        )
        .await;
    folder.put("c.jsonl", lines(8..9));
    folder.rows(&handle, 10).await;
    // Another file may begin like the deleted one.
    folder.put("a.jsonl", lines(5..6) + &lines(9..10));
    let rows = folder.rows(&handle, 12).await;
    let expected = [ids(0..7), vec!["{\"id\":null}".into()], ids([7, 8, 5, 9])].concat();
    assert_eq!(rows, expected);
    let said = log(&handle);
    assert!(
        !said.iter().any(|line| line.contains("a.jsonl is gone")),
        "{said:?}"
    );
    soon(handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_not_there_is_an_alarm_until_it_is() {
    let folder = Folder::new(5);
    let away = folder.path("away");
    let text = format!("path = \"{}\"", folder.at.path().display());
    let job = {
        let text = format!(
            "name = \"files\"\nstart = \"beginning\"\nsql = \"{IDS}\"\n[inputs.f]\n{text}/away\"\n"
        )
        .replace("\"/away", "/away");
        let mut file = JobFile::parse(&text, "job.toml").unwrap();
        file.follow_files().unwrap();
        Arc::new(Job::new(file).unwrap())
    };
    let handle = folder.world.start(&job, options());
    let alarm = format!("files of input \"f\": {} does not exist", away.display());
    folder
        .until(&handle, |handle| handle.status().alarms == [alarm.clone()])
        .await;
    disk::create_folder(&away).unwrap();
    folder.put("away/a.jsonl", lines(0..1));
    assert_eq!(folder.rows(&handle, 1).await, ids(0..1));
    folder
        .until(&handle, |handle| handle.status().alarms.is_empty())
        .await;
    soon(handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_lines_become_dead_letters_that_name_their_file() {
    let folder = Folder::new(6);
    let more = "[outputs.dead]\ntype = \"stdout\"\n[errors]\non_error = \"dead_letter\"\ndead_letter = \"dead\"\n";
    let handle = folder.world.start(&folder.job(IDS, more), options());
    folder.put("a.jsonl", "{\"id\":0}\n{\"id\":\n{\"id\":1}\n");
    folder.put("b.csv", "id,id\n1,2\n");
    folder.put("c.jsonl.gz", "not packed");
    let dead = || folder.world.recorder.rows("dead");
    folder.until(&handle, |_| dead().len() >= 3).await;
    assert_eq!(folder.rows(&handle, 2).await, ids(0..2));
    let dead = dead();
    for (letter, words) in dead.iter().zip(["a.jsonl", "b.csv", "c.jsonl.gz"]) {
        assert!(
            letter.contains(&format!("\"File\":\"{words}\"")),
            "{letter}"
        );
    }
    assert!(
        dead[0].contains("\"Event\":\"{\\\"id\\\":\""),
        "{}",
        dead[0]
    );
    // A letter may be out before it is counted.
    let counted = |handle: &Handle| handle.status().inputs[0].partitions[0].deserialization_errors;
    folder.until(&handle, |handle| counted(handle) == 3).await;
    soon(handle.stop()).await;
}

/// Whatever grows, appears and is killed: every line is one row, and the log gives the same rows to a batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_killed_again_and_again_takes_every_line_once() {
    for seed in 0..6 {
        let folder = Folder::new(seed);
        let job = folder.job("SELECT file, n INTO out FROM f", "");
        let mut random = Random::seeded(seed);
        let mut written = [0; 3];
        let mut handle = folder.world.start(&job, options());
        for _ in 0..40 {
            match random.below(10) {
                0..6 => {
                    let file = random.below(3) as usize;
                    let count = 1 + random.below(50);
                    let line = |n: u64| format!("{{\"file\":{file},\"n\":{n}}}\n");
                    let text: String = (written[file]..written[file] + count).map(line).collect();
                    written[file] += count;
                    folder.grow(&format!("{file}.jsonl"), &text);
                }
                6 => drop(soon(handle.checkpoint()).await),
                7..9 => {
                    soon(handle.kill()).await;
                    folder.world.recorder.crash(&mut random);
                    handle = folder.world.start(&job, resume());
                }
                _ => {
                    soon(handle.stop()).await;
                    handle = folder.world.start(&job, resume());
                }
            }
            folder.world.advance(random.below(3));
            tokio::time::sleep(Duration::from_micros(random.below(4_000))).await;
        }
        let total = written.iter().sum::<u64>() as usize;
        let rows = folder.rows(&handle, total).await;
        soon(handle.stop()).await;
        for (file, count) in written.iter().enumerate() {
            let mine = format!("{{\"file\":{file},");
            let mine: Vec<_> = rows.iter().filter(|row| row.starts_with(&mine)).collect();
            let expected: Vec<String> = (0..*count)
                .map(|n| format!("{{\"file\":{file},\"n\":{n}}}"))
                .collect();
            assert!(mine.into_iter().eq(&expected), "seed {seed}, file {file}");
        }
        let later = folder.world.afresh();
        let status = soon(later.start(&job, to_the_end()).ended()).await;
        assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
        assert!(later.recorder.rows("out") == rows, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_kept_of_files_goes_with_the_job() {
    let folder = Folder::new(7);
    let job = folder.job(IDS, "");
    folder.put("a.jsonl", lines(0..1));
    let handle = folder.world.start(&job, options());
    folder.rows(&handle, 1).await;
    soon(handle.stop()).await;
    assert_eq!(folder.world.log.hubs().len(), 2);
    delete_file_hubs("file", &folder.world.log).await.unwrap();
    assert_eq!(folder.world.log.hubs().len(), 2, "that is another job");
    delete_file_hubs("files", &folder.world.log).await.unwrap();
    assert_eq!(folder.world.log.hubs().len(), 0);
}
