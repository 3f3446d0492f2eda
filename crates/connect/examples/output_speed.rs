//! The cost of outputs: CPU seconds for a million rows, compared with only encoding them as JSON.
//!
//! `cargo run --release -p highwater-connect --example output_speed`
//!
//! Rows have four columns and about 90 bytes of JSON and come 1,000 at a time, with a checkpoint after every 100,000.
//! The hub is on a simulated disk in memory, so that only the code is measured.

use std::path::Path;
use std::sync::Arc;

use highwater_connect::json::JsonWriter;
use highwater_connect::{
    CsvFormat, EndpointError, FilesOutput, HubOutput, OutputContext, OutputFormat, OutputSettings,
    Rows,
};
use highwater_engine::{Chunk, Column, ColumnBuilder, Value};
use highwater_env::random::Random;
use highwater_env::{RealClock, SimDisk, usage};
use highwater_hub::{Hub, Options, groups, transactions};
use highwater_log::{HubName, HubSettings, HubSpec, Log};
use highwater_query::plan::Name;
use highwater_time::Instant;

const ROWS: u64 = 1_000_000;
const AT_A_TIME: u64 = 1_000;
const CHECKPOINT: u64 = 100_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<Rows> = (0..ROWS).step_by(AT_A_TIME as usize).map(rows).collect();
    println!("{:>24} {:>12}", "", "CPU seconds");

    let before = cpu();
    let mut writer = JsonWriter::new(names());
    let mut lines = Vec::new();
    for rows in &given {
        lines.clear();
        writer.write(&rows.chunk, &mut lines);
    }
    println!("{:>24} {:>12.2}", "JSON alone", cpu() - before);

    let hub = |key: Option<&str>| HubOutput {
        hub: "out".into(),
        key: key.map(Into::into),
    };
    measure("hub", hub(None), &given).await?;
    measure("hub, key", hub(Some("Device")), &given).await?;
    let files = |format| FilesOutput::new("/out", format);
    measure("files, JSON lines", files(OutputFormat::JsonLines), &given).await?;
    let csv = OutputFormat::Csv(CsvFormat::default());
    measure("files, CSV", files(csv), &given).await?;
    measure("files, Parquet", files(OutputFormat::Parquet), &given).await?;
    let mut by_device = FilesOutput::new("/out", OutputFormat::JsonLines);
    by_device.folders = "{date}/{hour}/device={Device}".into();
    measure("files, folder a device", by_device, &given).await
}

async fn measure(
    name: &str,
    output: impl OutputSettings,
    given: &[Rows],
) -> Result<(), Box<dyn std::error::Error>> {
    let disk = Arc::new(SimDisk::new(1));
    let clock = Arc::new(RealClock::new());
    let hub = Hub::open(
        disk.clone(),
        Path::new("data"),
        Options::default(),
        clock.clone(),
        &|_| {},
    )?;
    let log: Arc<dyn Log> = Arc::new(hub);
    let groups = groups::Service::new(
        log.clone(),
        clock.clone(),
        Random::seeded(1),
        groups::Options::default(),
    );
    let service = transactions::Service::new(
        log.clone(),
        clock,
        groups.handle(),
        transactions::Options::default(),
    );
    let handle = Arc::new(service.handle());
    let tasks = [
        tokio::spawn(async { drop(groups.run(std::future::pending()).await) }),
        tokio::spawn(async { drop(service.run(std::future::pending()).await) }),
    ];
    let (settings, partitions) = (HubSettings::default(), 4);
    log.create(HubSpec {
        name: HubName::new("out")?,
        partitions,
        settings,
    })
    .await?;
    let mut context = OutputContext::new("speed", "out", disk);
    context.hubs = Some((log, handle));
    let mut endpoint = output.open(names(), &context)?;
    while let Err(EndpointError::Unavailable { .. }) = endpoint.resume(None).await {
        tokio::task::yield_now().await;
    }
    let mut mark = endpoint.checkpoint().await?;
    let before = cpu();
    for rows in given {
        endpoint.write(rows).await?;
        endpoint.advance(rows.chunk.time(0)).await?;
        if rows.end().is_multiple_of(CHECKPOINT) {
            mark = endpoint.checkpoint().await?;
        }
    }
    endpoint.advance(Instant::AFTER_ALL).await?;
    println!(
        "{name:>24} {:>12.2}   last mark: {} bytes",
        cpu() - before,
        mark.len()
    );
    tasks.iter().for_each(|task| task.abort());
    Ok(())
}

fn cpu() -> f64 {
    usage().cpu.unwrap_or_default().as_secs_f64()
}

fn names() -> Vec<Name> {
    ["Device", "Plate", "Count", "At"]
        .map(|name| Name::Field(name.into()))
        .into()
}

/// One row per millisecond.
fn rows(first: u64) -> Rows {
    let numbers = first..first + AT_A_TIME;
    let times: Vec<i64> = numbers
        .clone()
        .map(|number| Instant::from_unix_millis(1_760_000_000_000 + number as i64).ticks())
        .collect();
    let mut plates = ColumnBuilder::with_capacity(AT_A_TIME as usize);
    numbers
        .clone()
        .for_each(|number| plates.push_owned(Value::text(&format!("KH {number}"))));
    let columns = vec![
        Column::from_ints(
            numbers
                .clone()
                .map(|number| (number % 100) as i64)
                .collect(),
        ),
        plates.finish(),
        Column::from_ints(numbers.map(|number| number as i64).collect()),
        Column::from_times(times.clone().into()),
    ];
    Rows {
        first,
        chunk: Chunk::new(times.into(), columns),
    }
}
