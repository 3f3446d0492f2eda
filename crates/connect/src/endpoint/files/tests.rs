//! The same files after any failures: a disk that loses power and fills up, and an object store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt;
use highwater_env::disk::{Access, Disk, Faults};
use highwater_env::{RealDisk, SimDisk};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use proptest::prelude::*;

use super::super::testing::*;
use super::*;
use crate::source::CsvFormat;

const FORMATS: [OutputFormat; 4] = [
    OutputFormat::JsonLines,
    OutputFormat::JsonArray,
    OutputFormat::Csv(CsvFormat {
        delimiter: b',',
        header: true,
    }),
    OutputFormat::Parquet,
];

fn output(format: OutputFormat, folders: &str) -> FilesOutput {
    FilesOutput {
        folders: folders.into(),
        rows_max: 7,
        every: Some(Duration::from_minutes(10)),
        ..FilesOutput::new("/out", format)
    }
}

/// Small enough that every limit is reached.
fn small(output: &FilesOutput) -> Limits {
    Limits {
        file_bytes_max: 300,
        open_bytes_max: 600,
        open_max: 3,
        ..output.limits()
    }
}

fn endpoint(output: &FilesOutput, store: Box<dyn Store>) -> Box<dyn Endpoint> {
    let opened = FilesEndpoint::over(output, small(output), names(), store);
    Box::new(opened.unwrap())
}

fn below(disk: &SimDisk) -> Box<dyn Store> {
    Box::new(Folder::new(Arc::new(disk.clone()), "/out".into()))
}

type Contents = BTreeMap<String, Vec<u8>>;

fn contents(disk: &SimDisk) -> Contents {
    let files = disk.files().into_iter();
    let read = |path: PathBuf| {
        let contents = disk.contents(&path).unwrap();
        (path.display().to_string(), contents)
    };
    files.map(read).collect()
}

/// The files after an undisturbed run.
fn undisturbed(output: &FilesOutput, input: &[Row]) -> Contents {
    let disk = SimDisk::new(1);
    block_on(play(input, &[], || endpoint(output, below(&disk))));
    contents(&disk)
}

fn any_folders() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "{date}/{hour}",
        "device={Device}",
        "{date}/{Text}/{minute}",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // proves S4
    #[test]
    fn power_cuts_and_failing_disks_change_no_byte(
        input in any_rows(80),
        steps in any_steps(),
        format in prop::sample::select(FORMATS.to_vec()),
        folders in any_folders(),
        seed: u64,
        power: bool,
        failing: bool,
    ) {
        let output = output(format, folders);
        let disk = SimDisk::new(seed);
        if failing {
            disk.set_faults(Faults { writes: 5, syncs: 5, folder_syncs: 5, ..Faults::default() });
        }
        let mut lives = 0;
        block_on(play(&input, &steps, || {
            lives += 1;
            match power && lives > 1 {
                true => disk.crash(),
                false => disk.restart(),
            }
            endpoint(&output, below(&disk))
        }));
        // All files are durable, and leftovers of failed writes are invisible.
        if power {
            disk.crash();
        }
        let mut found = contents(&disk);
        found.retain(|path, _| !path.ends_with(".tmp"));
        prop_assert_eq!(found, undisturbed(&output, &input));
    }

    // proves S4
    #[test]
    fn object_stores_hold_the_same_files(
        input in any_rows(80),
        steps in any_steps(),
        format in prop::sample::select(FORMATS.to_vec()),
        folders in any_folders(),
    ) {
        let output = output(format, folders);
        let bucket = Arc::new(InMemory::new());
        let found: Contents = block_on(async {
            let store = || Arc::clone(&bucket) as Arc<dyn ObjectStore>;
            play(&input, &steps, || {
                endpoint(&output, Box::new(remote::Bucket::new(store(), "/out/")))
            }).await;
            let mut found = BTreeMap::new();
            let objects: Vec<_> = bucket.list(None).try_collect().await.unwrap();
            for object in objects {
                let bytes = bucket.get(&object.location).await.unwrap().bytes().await.unwrap();
                found.insert(object.location.to_string(), bytes.to_vec());
            }
            found
        });
        prop_assert_eq!(found, undisturbed(&output, &input));
    }
}

fn row(seconds: i64, text: &str) -> Row {
    Row {
        seconds,
        device: Some(1),
        text: text.into(),
    }
}

// proves S3
#[test]
fn a_file_is_written_when_its_time_has_passed() {
    let disk = SimDisk::new(1);
    let output = output(OutputFormat::Csv(CsvFormat::default()), "{date}");
    let time = |seconds: i64| row(seconds, "").time();
    block_on(async {
        let mut endpoint = endpoint(&output, below(&disk));
        endpoint.resume(None).await.unwrap();
        let given = [row(0, "a"), row(60, "b"), row(125, "c")];
        endpoint.write(&rows(0, &given)).await.unwrap();
        // The third row is after midnight and so after the first span of ten minutes.
        let first = "out/2026-03-01/part-000000000000.csv";
        assert_eq!(contents(&disk).into_keys().collect::<Vec<_>>(), [first]);
        endpoint.advance(time(719)).await.unwrap();
        assert_eq!(contents(&disk).len(), 1);
        endpoint.advance(time(720)).await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&contents(&disk)["out/2026-03-02/part-000000000002.csv"]),
            "Device,Text,At\r\n1,c,2026-03-02T00:00:05.0000000Z\r\n"
        );
    });
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_is_lost() {
    let disk = SimDisk::new(1);
    let output = output(OutputFormat::JsonLines, "");
    let input: Vec<Row> = (0..40).map(|n| row(n, "text")).collect();
    block_on(async {
        let mut endpoint = endpoint(&output, below(&disk));
        endpoint.resume(None).await.unwrap();
        disk.set_faults(Faults {
            capacity: Some(100),
            ..Faults::default()
        });
        // Accepted; the next call reports the failure.
        endpoint.write(&rows(0, &input[..20])).await.unwrap();
        let rest = rows(20, &input[20..]);
        for _ in 0..3 {
            let failed = endpoint.write(&rest).await.unwrap_err();
            let full = matches!(failed, EndpointError::Unavailable { .. });
            assert!(full && endpoint.checkpoint().await.is_err(), "{failed}");
        }
        disk.set_faults(Faults::default());
        endpoint.write(&rest).await.unwrap();
        endpoint.advance(Instant::AFTER_ALL).await.unwrap();
    });
    assert_eq!(contents(&disk), undisturbed(&output, &input));
}

#[test]
fn a_file_of_somebody_else_is_not_replaced() {
    let disk = SimDisk::new(1);
    let output = output(OutputFormat::JsonLines, "");
    let write_as = |epoch: u64, text: &str| {
        block_on(async {
            let mut endpoint =
                FilesEndpoint::over(&output, small(&output), names(), below(&disk)).unwrap();
            endpoint.epoch = epoch;
            endpoint.resume(None).await.unwrap();
            endpoint.write(&rows(0, &[row(0, text)])).await.unwrap();
            endpoint.advance(Instant::AFTER_ALL).await
        })
    };
    write_as(0, "ours").unwrap();
    write_as(0, "ours").unwrap();
    let other = write_as(0, "theirs").unwrap_err();
    assert!(matches!(other, EndpointError::Unfit { .. }), "{other}");
    write_as(3, "theirs").unwrap();
    disk.contents(Path::new("/out/part-3-000000000000.jsonl"))
        .unwrap();
    let kept = disk.contents(Path::new("/out/part-000000000000.jsonl"));
    assert!(String::from_utf8_lossy(&kept.unwrap()).contains("ours"));
}

#[test]
fn a_folder_named_after_a_column_that_is_not_there_is_refused() {
    let output = output(OutputFormat::JsonLines, "{Nothing}");
    let opened = FilesEndpoint::over(&output, output.limits(), names(), below(&SimDisk::new(1)));
    assert!(matches!(opened.err(), Some(EndpointError::Unfit { .. })));
}

// proves S3
#[test]
fn a_million_folders_keep_few_files_open() {
    let disk = SimDisk::new(1);
    let output = output(OutputFormat::JsonLines, "{Text}");
    let input: Vec<Row> = (0..500).map(|n| row(0, &format!("{n}"))).collect();
    block_on(async {
        let mut endpoint = endpoint(&output, below(&disk));
        endpoint.resume(None).await.unwrap();
        endpoint.write(&rows(0, &input)).await.unwrap();
        let state = endpoint.checkpoint().await.unwrap();
        assert!(state.len() < 1000, "{}", state.len());
        assert_eq!(contents(&disk).len(), 500 - 3);
    });
}

// proves S3
#[test]
fn a_file_on_a_real_disk_holds_what_the_writer_of_its_format_makes() {
    let input: Vec<Row> = (0..100).map(|n| row(n, &format!("a,\"{n}"))).collect();
    let given = rows(0, &input);
    let extensions = ["jsonl", "json", "csv", "parquet"];
    for (format, extension) in FORMATS.into_iter().zip(extensions) {
        let folder = tempfile::tempdir().unwrap();
        let location = folder.path().join("made");
        let mut output = FilesOutput::new(location.display().to_string(), format);
        output.folders = "{date}/x".into();
        output.every = None;
        let context = OutputContext::new("job", "out", Arc::new(RealDisk));
        block_on(async {
            let mut endpoint = output.open(names(), &context).unwrap();
            endpoint.resume(None).await.unwrap();
            endpoint.write(&given).await.unwrap();
            endpoint.advance(Instant::AFTER_ALL).await.unwrap();
        });
        let mut writer = crate::row_writer(format, names()).unwrap();
        writer.write(&given.chunk).unwrap();
        writer.finish().unwrap();
        let mut expected = Vec::new();
        while let Some(crate::WriterOutput::Bytes(bytes)) = writer.take() {
            expected.extend(bytes);
        }
        let path = location.join("2026-03-01/x/part-000000000000");
        let file = RealDisk.open(&path.with_extension(extension), Access::Read);
        assert_eq!(file.unwrap().read_all().unwrap(), expected, "{extension}");
    }
}
