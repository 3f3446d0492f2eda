//! The PostgreSQL output against a real server, which `.ci/postgres` starts and these tests restart and disconnect.
//!
//! Without a server there is nothing to test, so they are ignored unless that script runs them.

#![cfg(feature = "postgres")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files as a user does"
)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use highwater_connect::{
    Endpoint, EndpointError, OutputContext, OutputSettings, PostgresOutput, Rows,
};
use highwater_engine::{Chunk, Column, ColumnBuilder, Record, Value};
use highwater_env::RealDisk;
use highwater_env::random::Random;
use highwater_query::plan::Name;
use tokio_postgres::{Client, NoTls};

/// The folder that the script has made.
fn folder() -> PathBuf {
    let folder = std::env::var_os("HIGHWATER_POSTGRES");
    PathBuf::from(folder.expect("run these tests with .ci/postgres"))
}

fn url() -> String {
    let url = std::fs::read_to_string(folder().join("url"));
    url.unwrap().trim().to_owned()
}

fn control(what: &[&str]) {
    let done = Command::new(folder().join("control")).args(what).status();
    assert!(done.unwrap().success(), "{what:?}");
}

async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A table for each test, and no state of the output.
async fn with_table(columns: &str) -> (Client, String) {
    let client = client().await;
    let table = std::thread::current().name().unwrap().replace(':', "_");
    let sql = format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} ({columns})");
    client.batch_execute(&sql).await.unwrap();
    (client, table)
}

fn endpoint(table: &str, key: &[&str], names: &[&str]) -> Box<dyn Endpoint> {
    let output = PostgresOutput {
        key: key.iter().map(|key| (*key).into()).collect(),
        ..PostgresOutput::new(url(), table)
    };
    open(output, names)
}

fn open(output: PostgresOutput, names: &[&str]) -> Box<dyn Endpoint> {
    let context = OutputContext::new("test", &output.table, Arc::new(RealDisk));
    let names = names.iter().map(|name| match *name {
        "*" => Name::Spread,
        name => Name::Field(name.into()),
    });
    output.open(names.collect(), &context).unwrap()
}

fn rows(first: u64, rows: &[Vec<Value>]) -> Rows {
    let width = rows.first().map_or(0, Vec::len);
    let column = |at: usize| -> Column {
        let mut builder = ColumnBuilder::with_capacity(rows.len());
        rows.iter()
            .for_each(|row| builder.push_owned(row[at].clone()));
        builder.finish()
    };
    let columns = (0..width).map(column).collect();
    Rows {
        first,
        chunk: Chunk::new(vec![0; rows.len()].into(), columns),
    }
}

/// Rows of a number and its text.
fn numbered(range: std::ops::Range<u64>) -> Rows {
    let row = |number: u64| {
        let text = Value::text(&format!("row\t{number}"));
        vec![Value::Int(number as i64), text]
    };
    let given: Vec<Vec<Value>> = range.clone().map(row).collect();
    rows(range.start, &given)
}

async fn begin(endpoint: &mut Box<dyn Endpoint>) -> Vec<u8> {
    endpoint.resume(None).await.unwrap();
    endpoint.checkpoint().await.unwrap()
}

async fn insist(endpoint: &mut Box<dyn Endpoint>, rows: &Rows) {
    for _ in 0..200 {
        match endpoint.write(rows).await {
            Ok(()) => return,
            Err(EndpointError::Unavailable { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the server did not come back");
}

async fn texts(client: &Client, sql: &str) -> Vec<String> {
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

// proves S3
#[tokio::test]
#[ignore = "needs a server; see .ci/postgres"]
async fn every_type_finds_its_column() {
    let (client, table) = with_table(
        "b bool, i int, f double precision, n numeric, t text, at timestamptz, day date, r jsonb, ints int[],
         texts text[], small smallint, made int GENERATED ALWAYS AS (i + 1) STORED, d text DEFAULT 'default'",
    )
    .await;
    let names = [
        "b", "i", "f", "n", "t", "AT", "day", "r", "ints", "texts", "small",
    ];
    let mut endpoint = endpoint(&table, &[], &names);
    begin(&mut endpoint).await;
    let time = highwater_time::Instant::parse_iso(b"2026-03-01T23:58:00.1234567Z").unwrap();
    let record = Record::from_fields(vec![("x".into(), Value::text("a\\\"\n"))]);
    let ints = Value::Array(vec![Value::Int(1), Value::Null].into());
    let odd = ["a,b", "\"\\", "", "NULL", "{ä\t"].map(Value::text);
    let full = vec![
        Value::Bit(true),
        Value::Float(7.0),
        Value::Float(0.1),
        Value::Int(5),
        Value::text("tab\t line\n back\\ \\N end\r"),
        Value::Time(time),
        Value::Time(time),
        Value::Record(record.into()),
        ints,
        Value::Array(odd.to_vec().into()),
        Value::Bit(true),
    ];
    let empty = vec![Value::Null; full.len()];
    endpoint.write(&rows(0, &[full, empty])).await.unwrap();
    let stored = texts(
        &client,
        &format!("SELECT to_jsonb({table})::text FROM {table} ORDER BY i NULLS LAST"),
    )
    .await;
    let stored: Vec<serde_json::Value> = stored
        .iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    assert_eq!(
        stored[0],
        serde_json::json!({
            "b": true, "i": 7, "f": 0.1, "n": 5, "t": "tab\t line\n back\\ \\N end\r",
            "at": stored[0]["at"], "day": "2026-03-01", "r": {"x": "a\\\"\n"}, "ints": [1, null],
            "texts": ["a,b", "\"\\", "", "NULL", "{ä\t"], "small": 1, "made": 8, "d": "default",
        })
    );
    assert!(stored[1]["t"].is_null() && stored[1]["d"] == "default");
    let same = format!("SELECT (at = '2026-03-01T23:58:00.123457Z')::text FROM {table} LIMIT 1");
    assert_eq!(texts(&client, &same).await, ["true"]);
}

// proves S3
#[tokio::test]
#[ignore = "needs a server; see .ci/postgres"]
async fn a_row_replaces_the_one_with_its_key() {
    let (client, table) =
        with_table("device text PRIMARY KEY, seen int, rest text DEFAULT '-'").await;
    let mut endpoint = endpoint(&table, &["device"], &["*"]);
    begin(&mut endpoint).await;
    let row = |device: &str, seen: i64| {
        let fields = [
            ("device", Value::text(device)),
            ("seen", Value::Int(seen)),
            ("unknown", Value::Int(1)),
        ];
        let fields = fields.map(|(name, value)| (name.into(), value));
        vec![Value::Record(Record::from_fields(fields.into()).into())]
    };
    endpoint
        .write(&rows(0, &[row("a", 1), row("b", 2), row("a", 3)]))
        .await
        .unwrap();
    endpoint
        .write(&rows(3, &[row("b", 4), row("c", 5), row("b", 6)]))
        .await
        .unwrap();
    let stored = texts(
        &client,
        &format!("SELECT device || seen FROM {table} ORDER BY 1"),
    )
    .await;
    assert_eq!(stored, ["a3", "b6", "c5"]);
}

// proves E1
#[tokio::test]
#[ignore = "needs a server; see .ci/postgres"]
async fn revisions_replace_each_other_and_a_withdrawn_row_is_deleted() {
    let (client, table) = with_table(
        "device text, n int NOT NULL, _revision bigint, _final bool, PRIMARY KEY (device)",
    )
    .await;
    let output = PostgresOutput::new(url(), &*table);
    let mut context = OutputContext::new("test", &output.table, Arc::new(RealDisk));
    context.early_key = Some(vec!["device".into()]);
    let names = ["device", "n", "_revision", "_final"].map(|name| Name::Field(name.into()));
    let mut endpoint = output.open(names.into(), &context).unwrap();
    begin(&mut endpoint).await;
    let row = |device: &str, n: Option<i64>, revision: i64, is_final: Option<bool>| {
        vec![
            Value::text(device),
            n.map_or(Value::Null, Value::Int),
            Value::Int(revision),
            is_final.map_or(Value::Null, Value::Bit),
        ]
    };
    let stored = format!(
        "SELECT device || ' ' || n || ' ' || _revision || ' ' || _final FROM {table} ORDER BY 1"
    );
    let early = [
        row("a", Some(1), 0, Some(false)),
        row("b", Some(1), 0, Some(false)),
        row("c", Some(1), 0, Some(false)),
        row("a", Some(2), 1, Some(false)),
    ];
    endpoint.write(&rows(0, &early)).await.unwrap();
    let first = ["a 2 1 false", "b 1 0 false", "c 1 0 false"];
    assert_eq!(texts(&client, &stored).await, first);
    let later = [
        row("b", None, 1, None),
        row("c", None, 1, None),
        row("c", Some(7), 0, Some(false)),
        row("a", Some(3), 2, Some(true)),
    ];
    endpoint.write(&rows(4, &later)).await.unwrap();
    assert_eq!(
        texts(&client, &stored).await,
        ["a 3 2 true", "c 7 0 false"],
        "b is withdrawn, c has come back"
    );
}

// proves S4
#[tokio::test]
#[ignore = "needs a server; see .ci/postgres"]
async fn rows_that_are_refused_are_found_and_the_others_wait() {
    let (client, table) = with_table("n int PRIMARY KEY CHECK (n <> 13), t text").await;
    let mut endpoint = endpoint(&table, &[], &["n", "t"]);
    begin(&mut endpoint).await;
    let mut given: Vec<Vec<Value>> = (0..40)
        .map(|n| vec![Value::Int(n), Value::text("")])
        .collect();
    given[20][0] = Value::text("twenty");
    given[30][0] = Value::Int(7);
    let refused = endpoint.write(&rows(0, &given)).await.unwrap_err();
    let EndpointError::Refused {
        rows: numbers,
        reason,
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(numbers, [13, 20, 30], "{reason}");
    assert_eq!(
        texts(&client, &format!("SELECT n::text FROM {table}"))
            .await
            .len(),
        0
    );
    for part in [0..13, 14..20, 21..30, 31..40] {
        let first = part.start as u64;
        endpoint.write(&rows(first, &given[part])).await.unwrap();
    }
    assert_eq!(
        texts(&client, &format!("SELECT n::text FROM {table}"))
            .await
            .len(),
        37
    );
    given[0][1] = Value::text("a\0b");
    let refused = endpoint.write(&rows(40, &given[..1])).await.unwrap_err();
    assert!(matches!(refused, EndpointError::Refused { rows, .. } if rows == [40]));
}

#[tokio::test]
#[ignore = "needs a server; see .ci/postgres"]
async fn what_cannot_work_says_so() {
    let (_, table) = with_table("n int, t text").await;
    for (table, key, names, told) in [
        ("nowhere", vec![], vec!["n"], "there is no table `nowhere`"),
        (
            &table[..],
            vec![],
            vec!["n", "x"],
            "has no column `x`; it has n, t",
        ),
        (
            &table[..],
            vec!["x"],
            vec!["n"],
            "the key `x` is not a column",
        ),
    ] {
        let mut endpoint = endpoint(table, &key, &names);
        let failed = endpoint.resume(None).await.unwrap_err();
        assert!(
            matches!(&failed, EndpointError::Unfit { reason } if reason.contains(told)),
            "{failed:?}"
        );
    }
    let mut no_index = endpoint(&table, &["n"], &["n", "t"]);
    begin(&mut no_index).await;
    let failed = no_index.write(&numbered(0..1)).await.unwrap_err();
    assert!(matches!(failed, EndpointError::Unfit { .. }), "{failed:?}");
    let mut early = endpoint(&table, &[], &["n", "t"]);
    early.resume(None).await.unwrap();
    assert!(matches!(
        early.write(&numbered(0..1)).await,
        Err(EndpointError::Unfit { .. })
    ));
}

// proves S4
#[tokio::test]
#[ignore = "needs a server; see .ci/postgres"]
async fn an_older_start_is_shut_out_and_a_new_beginning_is_one() {
    let (client, table) = with_table("n int, t text").await;
    let open = || endpoint(&table, &[], &["n", "t"]);
    let mut old = open();
    let mark = begin(&mut old).await;
    old.write(&numbered(0..5)).await.unwrap();
    let mut new = open();
    new.resume(Some(&mark)).await.unwrap();
    assert!(matches!(
        old.write(&numbered(5..6)).await,
        Err(EndpointError::Unfit { .. })
    ));
    new.write(&numbered(0..7)).await.unwrap();
    assert_eq!(
        texts(&client, &format!("SELECT n::text FROM {table}"))
            .await
            .len(),
        7
    );
    let later = new.checkpoint().await.unwrap();
    let mut anew = open();
    begin(&mut anew).await;
    anew.write(&numbered(0..1)).await.unwrap();
    // The earlier checkpoint is ahead of the database now.
    let failed = open().resume(Some(&later)).await.unwrap_err();
    assert!(matches!(failed, EndpointError::Unfit { .. }), "{failed:?}");
}

#[tokio::test]
#[ignore = "needs a server; see .ci/postgres"]
async fn a_connection_may_be_encrypted() {
    let (client, table) = with_table("n int, t text").await;
    let encrypted = |ca: Option<&str>| {
        let output = PostgresOutput {
            ca: ca.map(Into::into),
            ..PostgresOutput::new(format!("{}?sslmode=require", url()), &table)
        };
        open(output, &["n", "t"])
    };
    let mut endpoint = encrypted(Some(include_str!(
        "../../server/tests/server/http/cert.pem"
    )));
    begin(&mut endpoint).await;
    endpoint.write(&numbered(0..3)).await.unwrap();
    let sessions = "SELECT version FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                    WHERE application_name = 'highwater' AND ssl";
    assert_eq!(texts(&client, sessions).await.len(), 1);
    let refused = encrypted(None).resume(None).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused:?}");
}

/// Splits rows and crashes at random, while `disturb` interferes, and checks the rows at the end.
async fn survive(table: &str, key: &[&str], seed: u64, mut disturb: impl AsyncFnMut(u64)) {
    const ROWS: u64 = 400;
    let open = || endpoint(table, key, &["n", "t"]);
    let mut random = Random::seeded(seed);
    let mut endpoint = open();
    let mut mark = (begin(&mut endpoint).await, 0);
    let mut at = 0;
    while at < ROWS {
        match random.below(6) {
            0 => mark = (endpoint.checkpoint().await.unwrap(), at),
            1 => {
                endpoint = open();
                while let Err(error) = endpoint.resume(Some(&mark.0)).await {
                    assert!(
                        matches!(error, EndpointError::Unavailable { .. }),
                        "{error:?}"
                    );
                }
                at = mark.1;
            }
            2 => disturb(random.below(4)).await,
            _ => {
                let end = (at + 1 + random.below(30)).min(ROWS);
                insist(&mut endpoint, &numbered(at..end)).await;
                at = end;
            }
        }
    }
    let client = client().await;
    let stored = texts(&client, &format!("SELECT n || t FROM {table} ORDER BY n")).await;
    let expected: Vec<String> = (0..ROWS).map(|n| format!("{n}row\t{n}")).collect();
    assert_eq!(stored, expected, "seed {seed}");
}

// proves S4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a server; see .ci/postgres"]
async fn sessions_that_are_killed_lose_and_repeat_nothing() {
    for seed in 0..10 {
        let (_, table) = with_table("n int, t text").await;
        let killer = client().await;
        survive(&table, &[], seed, async |delay| {
            // Also in the middle of a write: sessions are killed concurrently.
            let sql = "SELECT pg_sleep($1::double precision / 1000), pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE application_name = 'highwater'";
            let statement = killer.prepare(sql).await.unwrap();
            let kill = killer.query_raw(&statement, [delay as f64]);
            drop(kill.await.unwrap());
        })
        .await;
    }
}

// proves S4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a server; see .ci/postgres"]
async fn a_server_that_restarts_or_dies_loses_and_repeats_nothing() {
    for (seed, key) in [(1, &[][..]), (2, &["n"])] {
        let (_, table) = with_table("n int UNIQUE, t text").await;
        let mut times = 0;
        survive(&table, key, seed, async |how| {
            times += 1;
            if times <= 4 {
                let how = if how % 2 == 0 { "fast" } else { "immediate" };
                tokio::task::spawn_blocking(move || control(&["restart", how]))
                    .await
                    .unwrap();
            }
        })
        .await;
    }
}

// proves S4
#[tokio::test]
#[ignore = "needs a server; see .ci/postgres"]
async fn a_server_that_is_down_is_unavailable() {
    let (_, table) = with_table("n int, t text").await;
    let mut endpoint = endpoint(&table, &[], &["n", "t"]);
    begin(&mut endpoint).await;
    control(&["stop"]);
    for _ in 0..2 {
        let failed = endpoint.write(&numbered(0..3)).await.unwrap_err();
        assert!(
            matches!(failed, EndpointError::Unavailable { .. }),
            "{failed:?}"
        );
    }
    control(&["start"]);
    insist(&mut endpoint, &numbered(0..3)).await;
    let client = client().await;
    assert_eq!(
        texts(&client, &format!("SELECT n::text FROM {table}"))
            .await
            .len(),
        3
    );
}
