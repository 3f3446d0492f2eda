//! Fuzzing on stable Rust: a corpus of valid inputs is mutated at random, and no target may panic, hang or break a law.
//!
//! In an ordinary test run each target has two seconds and a fixed seed. For longer runs:
//!
//! ```text
//! HIGHWATER_FUZZ_SECONDS=600 HIGHWATER_FUZZ_SEED=7 cargo test -p highwater-cli --test fuzz -- --nocapture
//! ```
//!
//! A failing input is minimised, printed and written to the build folder. The targets are those of cargo-fuzz, in
//! `fuzz/`. An input with a new outcome joins the corpus; this replaces coverage feedback.
#![allow(
    clippy::disallowed_methods,
    reason = "a fuzzer needs the clock and the files of the corpus"
)]

#[path = "../../../../fuzz/src/batches.rs"]
mod batches;
mod formats;
mod mutate;
#[path = "../../../../fuzz/src/targets.rs"]
mod targets;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Mutex, Once, mpsc};
use std::time::{Duration, Instant};

use highwater_env::random::Random;
use highwater_query::functions::table;

use mutate::{Mutator, smallest};

type Target = fn(&[u8]) -> u64;

/// An input that takes longer is a finding.
const SLOW: Duration = Duration::from_secs(5);
/// An input that takes longer than this never ends.
const HANGS: Duration = Duration::from_secs(60);
const CORPUS_MAX: usize = 20_000;
/// Targets with binary inputs.
const BINARY: [&str; 2] = ["avro", "parquet"];

fn setting(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

// The corpus.

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every file below a folder of the repository whose name fulfils the condition.
fn files(folder: &str, named: &dyn Fn(&str) -> bool) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else if named(&path.file_name().unwrap_or_default().to_string_lossy()) {
                found.extend(fs::read(path));
            }
        }
    }
    found
}

/// Golden queries, queries of the manual and the examples of functions.
fn queries() -> Vec<Vec<u8>> {
    let mut queries = files("cases", &|name| name.ends_with(".saql"));
    for page in files("docs", &|name| name.ends_with(".md")) {
        let page = String::from_utf8_lossy(&page).into_owned();
        let fences = page.split("```sql").skip(1);
        let texts = fences.filter_map(|from| from.split_once('\n')?.1.split("```").next());
        queries.extend(texts.map(|text| text.as_bytes().to_vec()));
    }
    let examples = table().iter().flat_map(|info| info.examples);
    queries.extend(examples.map(|(text, _)| format!("SELECT {text} AS v FROM Input").into_bytes()));
    queries
}

fn words() -> Vec<String> {
    let functions = table().iter().flat_map(|info| {
        let names = std::iter::once(info.name).chain(info.aliases.iter().copied());
        names.map(String::from).collect::<Vec<_>>()
    });
    let calls = table().iter().map(|info| info.signature.to_string());
    let keywords = "SELECT FROM WHERE GROUP BY HAVING UNION ALL JOIN LEFT INNER OUTER CROSS APPLY ON AND OR NOT CASE \
        WHEN THEN ELSE END AS INTO WITH OVER NULL IN LIKE BETWEEN IS TIMESTAMP PARTITION LIMIT DURATION ORDER ASC DESC \
        DISTINCT CREATE TABLE CAST bigint float nvarchar(max) datetime bit record array MATCH_RECOGNIZE MEASURES AFTER \
        MATCH SKIP TO NEXT ROW PATTERN DEFINE System.Timestamp() PartitionId EventEnqueuedUtcTime Input a b t v device \
        * + - / % & | ^ ~ = <> < ( ) , . ; 0 1 -1 7 1.5 1e308 9223372036854775807 9223372036854775808 0.0000001 1e999 \
        day hour minute second ms mcs year month week dayofyear '' 'a' '%' '2026-03-02' 'POINT(1 1)' [x] \"x\" udf.f( \
        uda.f( a.b.c Rooms 100000000";
    functions
        .chain(calls)
        .chain(keywords.split_whitespace().map(String::from))
        .collect()
}

fn events() -> Vec<Vec<u8>> {
    let mut events = files("cases", &|name| name.ends_with(".jsonl"));
    events.extend(
        [
            r#"{"a":1,"device":{"id":"x"},"t":"2026-03-02T00:00:00.1234567Z","v":[1,2.5e3,null,true]}"#,
            "{\"a\":\"\\ud83d\\ude00\\u00e4\\n\",\"A\":2,\"\":{}}\n{\"v\":-0.0}\r\n\n[1]\n{\"a\":1} x\n",
            "\u{feff}{\"t\":\"2026-03-02\",\"deep\":[[[[[[{\"a\":{}}]]]]]]}",
            "{\"a\":9223372036854775807}\n{\"a\":-9223372036854775808}\n{\"a\":1e308}\n{\"a\":123456789.123456789e-5}",
        ]
        .map(|text| text.as_bytes().to_vec()),
    );
    events
}

fn json_words() -> Vec<String> {
    let words = r#"{ } [ ] , : " "a" "A" "device" "id" "t" "v" null true false 0 -0 1 -1 01 1. .5 1e5 1E+5 1e999 -
        9223372036854775807 9223372036854775808 -9223372036854775808 1e-400 0.1 "\u0000" "\ud800" "\ud83d\ude00" "\x"
        "2026-03-02T00:00:00Z" "2026-03-02T25:00:00Z" NaN Infinity {} []"#;
    let lines = ["\n", "\r\n", "\n{\"a\":1}\n", "{\"a\":"].map(String::from);
    words
        .split_whitespace()
        .map(String::from)
        .chain(lines)
        .collect()
}

fn csv_files() -> Vec<Vec<u8>> {
    let texts = [
        "a,device.id,t,v\n1,x,2026-03-02T00:00:00Z,2.5\n\"two\nlines\",\"say \"\"hi\"\"\",,\n",
        "a,v\r\n1,2\r\n\r\n3\r\n4,5,6\r\n",
        "\u{feff}a,a,v\n1,2,3\n",
        "a,v\n\"open,1\n2,3\n",
        "a\n\"x\"y\nz\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

fn csv_words() -> Vec<String> {
    let words = [
        "\n", "\r\n", "\"", "\"\"", ",", ";", "\t", "a", "v", "t", "\"x\"", ",,,,", "\r", "\"\n\"",
    ];
    words.map(String::from).to_vec()
}

fn job_words() -> Vec<String> {
    let keys = "name query sql compatibility time inputs outputs errors expect late_arrival out_of_order early_arrival \
        late_events early_events type path arrival partition reference format compression delimiter header on_error \
        dead_letter order error functions [inputs.A] [outputs.B] [time] [errors] = \"5s\" \"off\" \"1h30m\" \"-1s\" true [] {} \
        \"csv\" \"jsonl\" \"drop\" 1 1.5 \"\" \"\"\" 1979-05-27";
    let mut words: Vec<String> = keys.split_whitespace().map(String::from).collect();
    words.extend(["\n", "\n\n[inputs.A]\npath = \"a.jsonl\"\n"].map(String::from));
    words
}

/// An empty request of every API and version, and some with content.
fn kafka_requests() -> Vec<Vec<u8>> {
    let empty = (0..62).flat_map(|key: i16| (0..14).map(move |version| (key, version)));
    let mut requests: Vec<Vec<u8>> = empty
        .map(|(key, version)| kafka_frame(key, version, &[0; 48]))
        .collect();
    let mut builder = highwater_log::batch::BatchBuilder::new();
    builder.push(&highwater_log::batch::NewRecord {
        key: Some(b"k"),
        value: Some(b"v"),
        headers: &[("h", None)],
    });
    let batch = builder.build(&Default::default()).expect("it has a record");
    let batch = batch.to_bytes();
    // No client and no tags; no transaction, all acknowledge, in a second; topic `t`, partition 0.
    let head = b"\xff\xff\0\0\xff\xff\0\0\x03\xe8\x02\x02t\x02\0\0\0\0";
    let length = u8::try_from(batch.len() + 1).expect("it is short");
    let produce = [&head[..], &[length], &batch, &[0, 0, 0]].concat();
    let produce = kafka_frame(0, 9, &produce);
    // Wait 0 ms for 1 byte of 1 MiB, uncommitted; topic `t`, partition 0 from 0.
    let fetch = b"\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\x01\0\x10\0\0\0\0\0\0\x01\0\x01t\
        \0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0";
    let fetch = kafka_frame(1, 4, fetch);
    // Group `g`, 10 s, a newcomer, `consumer` with the protocol `p`.
    let join = b"\xff\xff\0\x01g\0\0\x27\x10\0\0\0\x08consumer\0\0\0\x01\0\x01p\0\0\0\x01m";
    let join = kafka_frame(11, 0, join);
    requests.push([&produce[..], &produce, &fetch, &join].concat());
    requests.extend([produce, fetch, join]);
    requests
}

fn kafka_frame(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let (key, version) = (key.to_be_bytes(), version.to_be_bytes());
    let payload = [&key[..], &version, &[0, 0, 0, 1], body].concat();
    let length = u32::try_from(payload.len()).expect("it is short");
    [&length.to_be_bytes()[..], &payload].concat()
}

// The run.

thread_local! {
    /// The location of the last panic of this thread, while it fuzzes.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static FUZZING: RefCell<bool> = const { RefCell::new(false) };
}

/// Records panics of targets instead of printing them: there may be thousands.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !FUZZING.with(|fuzzing| *fuzzing.borrow()) {
                return usual(info);
            }
            let location = info.location().map(ToString::to_string).unwrap_or_default();
            let said = info.payload();
            let text = said.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| said.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_default();
            PANIC.with(|panic| *panic.borrow_mut() = Some(format!("{location}: {text}")));
        }));
    });
}

/// The outcome of the target, or the location of its panic.
fn execute(target: Target, input: &[u8]) -> Result<u64, String> {
    FUZZING.with(|fuzzing| *fuzzing.borrow_mut() = true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| target(input)));
    FUZZING.with(|fuzzing| *fuzzing.borrow_mut() = false);
    result.map_err(|_| {
        PANIC
            .with(|panic| panic.borrow_mut().take())
            .unwrap_or_default()
    })
}

/// Panics at one location are one finding.
fn location(panic: &str) -> String {
    panic.split(": ").next().unwrap_or_default().to_string()
}

/// Ends the process when an input never ends: there is no other way to stop it.
struct Watchdog {
    current: Arc<Mutex<(Instant, Vec<u8>)>>,
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    fn new(name: &'static str) -> Watchdog {
        let current = Arc::new(Mutex::new((Instant::now(), Vec::new())));
        let (stop, stopped) = mpsc::channel::<()>();
        let watched = Arc::clone(&current);
        let watch = move || {
            while stopped.recv_timeout(Duration::from_secs(5))
                == Err(mpsc::RecvTimeoutError::Timeout)
            {
                let (since, input) = &*watched.lock().expect("no thread panics with the lock");
                if since.elapsed() > HANGS {
                    let kept = keep(name, 99, input);
                    eprintln!(
                        "{name} hangs on {kept}:\n{}",
                        String::from_utf8_lossy(input)
                    );
                    std::process::abort();
                }
            }
        };
        std::thread::Builder::new()
            .name(format!("watch {name}"))
            .spawn(watch)
            .expect("a thread can be had");
        Watchdog {
            current,
            _stop: stop,
        }
    }

    fn starts(&self, input: &[u8]) {
        let mut current = self.current.lock().expect("no thread panics with the lock");
        current.0 = Instant::now();
        current.1.clear();
        current.1.extend_from_slice(input);
    }
}

fn keep(name: &str, number: usize, input: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}-{number}"));
    let _ = fs::write(&path, input);
    path.display().to_string()
}

#[derive(Default)]
struct Findings(BTreeMap<String, Vec<u8>>);

impl Findings {
    fn add(&mut self, name: &str, what: String, input: &[u8], target: Target) {
        let at = location(&what);
        if self.0.keys().any(|known| location(known) == at) || self.0.len() >= 50 {
            return;
        }
        let again =
            |shorter: &[u8]| execute(target, shorter).is_err_and(|other| location(&other) == at);
        let smallest = if at.starts_with("slow") {
            input.to_vec()
        } else {
            smallest(input, again)
        };
        let what = execute(target, &smallest).err().unwrap_or(what);
        let kept = keep(name, self.0.len(), &smallest);
        eprintln!(
            "{name}: {what}\n  {kept}\n{}\n",
            String::from_utf8_lossy(&smallest)
        );
        self.0.insert(what, smallest);
    }
}

fn fuzz(name: &'static str, target: Target, corpus: Vec<Vec<u8>>, words: &[String]) {
    note_panics();
    let budget = Duration::from_secs(setting("HIGHWATER_FUZZ_SECONDS", 2));
    let seed = setting("HIGHWATER_FUZZ_SEED", 1);
    // After an abort, such as a stack that overflows, the last input of the trace is the one to look at.
    let trace = std::env::var_os("HIGHWATER_FUZZ_TRACE");
    let mut mutator = Mutator {
        random: Random::seeded(seed),
        words,
        binary: BINARY.contains(&name),
    };
    let watchdog = Watchdog::new(name);
    let mut corpus = corpus;
    let (mut seen, mut findings) = (HashSet::new(), Findings::default());
    let (start, mut executions, seeds) = (Instant::now(), 0u64, corpus.len());
    assert!(seeds > 0);
    while start.elapsed() < budget {
        let at = executions as usize;
        let input = match at < seeds {
            true => corpus[at].clone(),
            false => {
                let [one, other] =
                    [(); 2].map(|()| mutator.random.below(corpus.len() as u64) as usize);
                mutator.change(&corpus[one], &corpus[other])
            }
        };
        if let Some(folder) = &trace {
            let _ = fs::write(Path::new(folder).join(name), &input);
        }
        watchdog.starts(&input);
        let began = Instant::now();
        match execute(target, &input) {
            Ok(outcome) if seen.insert(outcome) && at >= seeds && corpus.len() < CORPUS_MAX => {
                corpus.push(input.clone())
            }
            Ok(_) => {}
            Err(what) => findings.add(name, what, &input, target),
        }
        if began.elapsed() > SLOW {
            let what = format!(
                "slow input: {:?} for {} bytes",
                began.elapsed(),
                input.len()
            );
            findings.add(name, what, &input, target);
        }
        executions += 1;
    }
    eprintln!(
        "{name}: {executions} executions in {:.0?}, {} outcomes, {} findings, seed {seed}",
        start.elapsed(),
        seen.len(),
        findings.0.len()
    );
    assert!(findings.0.is_empty(), "{:#?}", findings.0.keys());
}

// proves S2
#[test]
fn parser() {
    fuzz("parser", targets::parser, queries(), &words());
}

// proves S2
#[test]
fn binder() {
    fuzz("binder", targets::binder, queries(), &words());
}

// proves S1, T8
#[test]
fn engine() {
    fuzz("engine", targets::engine, queries(), &words());
}

/// A fuzzer whose inputs no longer reach the engine would find nothing, silently.
#[test]
fn most_queries_of_the_corpus_run_and_many_give_rows() {
    let queries = queries();
    let ran: Vec<usize> = queries.iter().filter_map(|q| targets::run(q).1).collect();
    let with_rows = ran.iter().filter(|rows| **rows > 0).count();
    let counts = (queries.len(), ran.len(), with_rows);
    assert!(
        ran.len() * 2 > queries.len() && with_rows * 4 > queries.len(),
        "{counts:?}"
    );
    eprintln!("queries, those that ran, those with rows: {counts:?}");
}

// proves S3
#[test]
fn json_decoder() {
    fuzz(
        "json_decoder",
        targets::json_decoder,
        events(),
        &json_words(),
    );
}

// proves S3
#[test]
fn csv() {
    fuzz("csv", targets::csv, csv_files(), &csv_words());
}

// proves S3
#[test]
#[cfg_attr(not(feature = "avro"), ignore = "needs the feature `avro`")]
fn avro() {
    fuzz(
        "avro",
        targets::avro,
        formats::avro_files(),
        &formats::words(),
    );
}

// proves S3
#[test]
#[cfg_attr(not(feature = "parquet"), ignore = "needs the feature `parquet`")]
fn parquet() {
    let files = formats::parquet_files();
    fuzz("parquet", targets::parquet, files, &formats::words());
}

#[test]
fn job_file() {
    let jobs = files("cases", &|name| name == "job.toml");
    fuzz("job_file", targets::job_file, jobs, &job_words());
}

/// Batches of the Java and the Python client.
fn batch_files() -> Vec<Vec<u8>> {
    files("crates/log/tests/batches", &|name| name.ends_with(".batch"))
}

// proves L3, L6
#[test]
fn batch() {
    let words = ["\0", "\u{1}", "\u{2}", "key-", "value ", "trace", "x"].map(String::from);
    fuzz("batch", batches::batch, batch_files(), &words);
}

/// A conversation: headers, Open, Begin, both kinds of links, credit, messages in one and in two frames.
fn amqp_conversations() -> Vec<Vec<u8>> {
    let frame = |body: &[u8]| {
        let length = u32::try_from(body.len() + 8).unwrap().to_be_bytes();
        [&length[..], &[2, 0, 0, 0], body].concat()
    };
    let list = |code: u8, fields: &[&[u8]]| {
        let fields_bytes = fields.concat();
        let size = u8::try_from(fields_bytes.len() + 1).unwrap();
        let count = u8::try_from(fields.len()).unwrap();
        [&[0, 0x53, code, 0xc0, size, count][..], &fields_bytes].concat()
    };
    let (null, zero, name): (&[u8], &[u8], &[u8]) = (&[0x40], &[0x43], &[0xa1, 1, b'c']);
    let (yes, no, big): (&[u8], &[u8], &[u8]) = (&[0x41], &[0x42], &[0x52, 200]);
    let terminus = list(0x29, &[name]);
    let attach = |handle: &[u8], role: &[u8]| {
        frame(&list(
            0x12,
            &[
                name, handle, role, null, null, &terminus, &terminus, null, null, zero,
            ],
        ))
    };
    let transfer = |more: &[u8]| {
        let performative = list(0x14, &[zero, zero, &[0xa0, 1, 7], zero, no, more]);
        frame(&[&performative[..], &[0, 0x53, 0x75, 0xa0, 2, b'h', b'i']].concat())
    };
    let start = [
        b"AMQP\0\x01\0\0".to_vec(),
        frame(&list(0x10, &[name])),
        frame(&list(0x11, &[null, zero, big, big])),
    ]
    .concat();
    let sends = [
        &start[..],
        &attach(zero, no),
        &transfer(no),
        &transfer(yes),
        &transfer(no),
    ]
    .concat();
    let credit = frame(&list(
        0x13,
        &[zero, big, zero, big, &[0x52, 1], zero, big, null, yes, yes],
    ));
    let reads = [
        &start[..],
        &attach(&[0x52, 1], yes),
        &credit,
        &frame(&list(0x17, &[])),
    ]
    .concat();
    let login = [
        &b"AMQP\x03\x01\0\0"[..],
        &[0, 0, 0, 22, 2, 1, 0, 0],
        &list(0x41, &[&[0xa3, 1, b'X']]),
        &[0; 5],
    ];
    vec![sends, reads, login.concat()]
}

// proves A1, G2
#[test]
fn amqp() {
    let words = ["\0S", "\0", "AMQP", "@", "\u{1}", "C"].map(String::from);
    fuzz("amqp", targets::amqp, amqp_conversations(), &words);
}

/// The conversations of the corpus get as far as messages.
#[test]
fn conversations_of_the_corpus_are_understood() {
    let nothing = targets::amqp(&[]);
    for conversation in amqp_conversations().iter().take(2) {
        assert_ne!(targets::amqp(conversation), nothing);
    }
}

// proves L6, U3
#[test]
fn kafka() {
    let words = ["\0", "\0\0\0\x01", "t", "\x02t", "g", "\x7f", "\0\x01t"].map(String::from);
    fuzz("kafka", targets::kafka, kafka_requests(), &words);
}

/// The same for requests: most of those with content are answered.
#[test]
fn requests_of_the_corpus_are_answered() {
    let nothing = targets::kafka(&[]);
    let answered = |request: &Vec<u8>| targets::kafka(request) != nothing;
    let count = kafka_requests()
        .iter()
        .filter(|request| answered(request))
        .count();
    assert!(count > 100, "{count}");
}
