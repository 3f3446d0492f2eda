//! `highwater up` and the commands that talk to it, from a user's view.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_highwater");

fn highwater(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HIGHWATER_")) {
        command.env_remove(name);
    }
    command
}

/// A running node on a port of its own. Ends with the test.
struct Node {
    child: Child,
    stderr: BufReader<ChildStderr>,
    url: String,
    _folder: TempDir,
}

impl Node {
    fn start() -> Node {
        Node::start_with("")
    }

    fn start_with(settings: &str) -> Node {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("highwater.toml"), settings).unwrap();
        Node::start_in(folder)
    }

    /// With the settings in the folder.
    fn start_in(folder: TempDir) -> Node {
        let mut child = highwater(&["up", "--http", "127.0.0.1:0", "--kafka", "off"])
            .current_dir(folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut printed = String::new();
        let url = loop {
            let mut line = String::new();
            assert_ne!(
                stderr.read_line(&mut line).unwrap(),
                0,
                "it did not start:\n{printed}"
            );
            printed.push_str(&line);
            if let Some(url) = line.trim().strip_prefix("HTTP ").map(str::trim) {
                break url.to_owned();
            }
        };
        Node {
            child,
            stderr,
            url,
            _folder: folder,
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = highwater(arguments);
        command.env("HIGHWATER_SERVER", &self.url).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {printed}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// proves T18
#[test]
fn an_event_of_a_running_job_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().to_str().unwrap();
    assert!(highwater(&["init", project]).status().unwrap().success());
    let node = Node::start_in(folder);
    let event = r#"{"device":"a","time":"2020-01-01T00:00:00Z","temperature":20}"#;
    let sent = node.json(&["hub", "send", "readings", event, "--json"]);
    let place = format!("readings/{}/{}", sent["partition"], sent["offset"]);
    let shown = node.ok(&["why", "--job", "averages", &place]);
    let verdict = format!("readings/{}:{}  late", sent["partition"], sent["offset"]);
    assert!(shown.starts_with(&verdict), "{shown}");
    assert!(
        shown.contains("happened   2020-01-01T00:00:00.000Z"),
        "{shown}"
    );
    assert!(shown.contains(event), "{shown}");
    let fate = node.json(&["why", "--job", "averages", &place, "--json"]);
    assert_eq!(fate["verdict"], "late", "{fate}");
    let wrong = node.run(&["why", "--job", "averages", "readings"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("INPUT/PARTITION/OFFSET"), "{said}");
    assert!(
        !node
            .run(&["why", "--job", "averages", "readings/0/999"])
            .status
            .success()
    );
}

#[test]
fn a_new_project_runs() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().to_str().unwrap();
    assert!(highwater(&["init", project]).status().unwrap().success());
    let node = Node::start_in(folder);
    let job = node.json(&["job", "status", "averages", "--json"]);
    assert_ne!(job["state"], "failed", "{job}");
    let hubs = node.ok(&["hub", "list"]);
    assert!(
        hubs.contains("readings") && hubs.contains("averages"),
        "{hubs}"
    );
}

// proves L6
#[test]
fn a_hub_is_made_filled_read_and_deleted() {
    let node = Node::start();
    assert_eq!(
        node.ok(&["hub", "create", "t", "--partitions", "1"]),
        "hub t with 1 partitions\n"
    );
    let sent = node.json(&["hub", "send", "t", "{\"n\":0}", "--json"]);
    assert_eq!(
        (&sent["partition"], &sent["offset"]),
        (&json!(0), &json!(0))
    );
    let mut bulk = highwater(&["hub", "send", "t", "--connections", "1", "--batch", "10"])
        .env("HIGHWATER_SERVER", &node.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = (1..100).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    bulk.stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = bulk.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("sent 99 events, {} bytes\n", lines.len())
    );

    let expected: String = (0..100).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert_eq!(node.ok(&["hub", "tail", "t"]), expected);
    assert_eq!(
        node.ok(&["hub", "tail", "t", "--from", "98"]),
        "{\"n\":98}\n{\"n\":99}\n"
    );
    assert_eq!(
        node.ok(&["hub", "tail", "t", "-f", "--from", "earliest", "-n", "2"]),
        "{\"n\":0}\n{\"n\":1}\n"
    );
    let record = node.json(&["hub", "tail", "t", "-n", "1", "--json"]);
    assert_eq!(
        (&record["offset"], &record["value"]),
        (&json!(0), &json!({"n": 0}))
    );

    let shown = node.json(&["hub", "describe", "t", "--json"]);
    assert_eq!(shown["places"][0]["end"], 100);
    assert!(node.ok(&["hub", "describe", "t"]).contains("100"));
    assert_eq!(node.json(&["hub", "list", "--json"])[0]["name"], "t");
    assert!(node.ok(&["hub", "list"]).starts_with("t  "));
    assert_eq!(node.ok(&["hub", "delete", "t", "--yes"]), "deleted hub t\n");
    assert_eq!(node.json(&["hub", "list", "--json"]), json!([]));
}

#[test]
fn a_hub_is_grown_set_and_trimmed_while_it_is_used() {
    let node = Node::start();
    node.ok(&["hub", "create", "t", "--partitions", "1"]);
    for n in ["1", "2", "3"] {
        node.ok(&["hub", "send", "t", n]);
    }
    assert_eq!(
        node.ok(&["hub", "trim", "t", "0", "--before", "2", "--yes"]),
        "partition 0 of hub t starts at 2\n"
    );
    assert_eq!(node.ok(&["hub", "tail", "t"]), "3\n");
    assert_eq!(
        node.ok(&["hub", "grow", "t", "3"]),
        "hub t with 3 partitions\n"
    );
    assert_eq!(
        node.ok(&[
            "hub",
            "set",
            "t",
            "--retention",
            "2d",
            "--retention-bytes",
            "1000"
        ]),
        "hub t: cleanup delete, retention 2d\n"
    );
    let shown = node.json(&[
        "hub",
        "set",
        "t",
        "--retention-bytes",
        "unlimited",
        "--json",
    ]);
    assert_eq!(
        (&shown["partitions"], &shown["retention_bytes"]),
        (&json!(3), &json!(null))
    );
    assert_eq!(shown["retention_seconds"], 2 * 24 * 3600);
    assert_eq!(node.run(&["hub", "set", "t"]).status.code(), Some(2));
    assert_eq!(node.ok(&["hub", "groups"]), "");
    let none = node.run(&["hub", "groups", "g", "--delete", "--yes"]);
    let printed = String::from_utf8(none.stderr).unwrap();
    assert!(printed.contains("there is no such group"), "{printed}");
}

// proves L7
#[test]
fn a_sharded_hub_reads_and_writes_its_members() {
    let node = Node::start_with("[sharded.all]\nhubs = ['a', 'b']\n[hubs.a]\npartitions = 1\n");
    for n in 0..20 {
        let value = n.to_string();
        let sent = node.json(&[
            "hub",
            "send",
            "all",
            &value,
            "--partition-key",
            &value,
            "--json",
        ]);
        assert!(sent["hub"] == "a" || sent["hub"] == "b", "{sent}");
    }
    let listed = node.ok(&["hub", "list"]);
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with("all ") && line.ends_with("sharded over a, b")),
        "{listed}"
    );
    assert_eq!(
        node.ok(&["hub", "describe", "all"]),
        "all is sharded over a, b\n"
    );
    for arguments in [
        &["hub", "tail", "all"][..],
        &["hub", "tail", "all", "-f", "--from", "earliest", "-n", "20"],
    ] {
        let printed = node.ok(arguments);
        let mut seen: Vec<u32> = printed.lines().map(|line| line.parse().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
    }
    let of_a = node.ok(&["hub", "tail", "a"]).lines().count();
    assert!((1..20).contains(&of_a), "{of_a} of 20 in one of two hubs");
}

/// A node with a log of its own has everything itself.
// proves X1
#[test]
fn the_nodes_and_what_they_have_are_shown() {
    let node = Node::start_with("[queues.jobs]\n");
    let shown = node.ok(&["cluster"]);
    assert!(shown.contains("this node"), "{shown}");
    let row = shown.lines().find(|line| line.starts_with("queue"));
    assert!(
        row.is_some_and(|row| row.contains("jobs") && row.contains("running")),
        "{shown}"
    );
    let view = node.json(&["cluster", "--json"]);
    assert_eq!(
        (&view["log"], &view["rows"][0]["backlog"]),
        (&json!("own"), &json!(0))
    );
}

#[test]
fn an_error_of_the_server_is_shown_with_its_hint() {
    let node = Node::start();
    let output = node.run(&["hub", "describe", "none"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("there is no hub `none`") && printed.contains("highwater hub create"),
        "{printed}"
    );
}

// proves U3
#[test]
fn a_node_with_keys_asks_for_one() {
    let node = Node::start_with(
        "[[keys]]\nname = 'app'\nsecret = 's3cret'\nrights = ['send', 'listen', 'manage']\n",
    );
    let output = node.run(&["hub", "list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("this needs a key"));
    assert_eq!(
        node.json(&["hub", "list", "--json", "--key", "app:s3cret"]),
        json!([])
    );
}

// proves G4
#[test]
fn keys_are_added_rotated_and_revoked() {
    let node = Node::start_with(
        "[[keys]]\nname = 'root'\nsecret = 's3cret'\nrights = ['send', 'listen', 'manage']\n",
    );
    let as_root = |arguments: &[&str]| node.ok(&[arguments, &["--key", "root:s3cret"]].concat());
    let key = |secret: &str| format!("app:{}", secret.trim());
    let may_list = |key: &str| node.run(&["hub", "list", "--key", key]).status.success();
    let first = key(&as_root(&[
        "key",
        "add",
        "app",
        "--right",
        "listen",
        "--expires-in",
        "1d",
    ]));
    assert!(may_list(&first));
    let second = key(&as_root(&["key", "rotate", "app", "--revoke-previous"]));
    assert!(may_list(&second) && !may_list(&first));
    let listed = as_root(&["key", "list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(
        lines[1].starts_with("root") && lines[2].starts_with("app"),
        "{listed}"
    );
    as_root(&["key", "revoke", "app"]);
    assert!(!may_list(&second));
}

#[test]
fn without_a_server_the_message_says_how_to_start_one() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let output = highwater(&["hub", "list", "--server", &format!("http://{free}")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("highwater up"));
    let output = highwater(&["hub", "list", "--server", "ftp://x"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let output = highwater(&["up", "--http", &address, "--kafka", "off"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains(&address) && printed.contains("set http.listen to another port"),
        "{printed}"
    );
}

// proves U3
#[test]
fn wrong_or_dangerous_settings_start_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("highwater.toml");
    std::fs::write(&file, "[http]\nlisten = '0.0.0.0:0'\n").unwrap();
    let output = highwater(&["up"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("highwater.toml:2") && printed.contains("[[keys]]"),
        "{printed}"
    );
}

#[test]
fn config_show_has_the_origin_of_each_value() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("highwater.toml");
    std::fs::write(
        &file,
        "data = 'd'\n[[keys]]\nname = 'a'\nsecret = 's3cret'\nrights = ['send']\n",
    )
    .unwrap();
    let output = highwater(&["config", "show", "--set", "http.wait_max=5s"])
        .env("HIGHWATER_DURABILITY", "os")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |key: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{key} ")))
            .unwrap();
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(row("data"), ["data", "d", "highwater.toml:1"]);
    assert_eq!(
        row("durability"),
        ["durability", "os", "HIGHWATER_DURABILITY"]
    );
    assert_eq!(row("http.wait_max"), ["http.wait_max", "5s", "flag"]);
    assert_eq!(
        row("http.listen"),
        ["http.listen", "127.0.0.1:8080", "default"]
    );
    assert!(!text.contains("s3cret"));
}

#[cfg(unix)]
#[test]
fn a_signal_stops_a_node_gracefully() {
    let mut node = Node::start();
    node.ok(&["hub", "send", "t", "1"]);
    let id = node.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(node.child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    node.stderr.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("stopping"), "{rest}");
}

#[test]
fn the_load_generator_reports_its_measurements() {
    let node = Node::start();
    let report = node.json(&[
        "bench",
        "http",
        "--url",
        &node.url,
        "--rate",
        "200",
        "--seconds",
        "1",
        "--json",
    ]);
    assert_eq!(
        (&report["due"], &report["answered"], &report["errors"]),
        (&json!(200), &json!(200), &json!(0))
    );
    let shown = node.json(&["hub", "describe", "bench", "--json"]);
    let stored: i64 = shown["places"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["end"].as_i64().unwrap())
        .sum();
    assert_eq!(stored, 200);
}

/// Every curl command of docs/hub.md works as printed.
#[cfg(unix)]
#[test]
fn the_commands_of_the_guide_work() {
    if Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let node = Node::start();
    let page = include_str!("../../../../docs/hub.md");
    let mut ran = 0;
    let mut in_shell = false;
    for line in page.lines() {
        match line {
            "```sh" => in_shell = true,
            "```" => in_shell = false,
            _ => {}
        }
        let plain = line.trim();
        if !in_shell || !plain.starts_with("curl ") {
            continue;
        }
        let command = plain.replace("http://127.0.0.1:8080", &node.url).replacen(
            "curl ",
            "curl -sS --max-time 20 -f ",
            1,
        );
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        // A live stream is ended by its own --max-time, which is 28.
        let ended = matches!(output.status.code(), Some(0))
            || plain.contains("--max-time") && output.status.code() == Some(28);
        assert!(
            ended,
            "{plain}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        ran += 1;
    }
    assert!(ran >= 6, "only {ran} commands were found");
}

// proves Q1, Q2
#[test]
fn a_queue_is_made_filled_worked_off_and_deleted() {
    let node = Node::start();
    let made = node.ok(&["queue", "create", "work", "--deliveries-max", "1"]);
    assert_eq!(made, "queue work\n");
    node.ok(&["queue", "set", "work", "--duplicates-within", "10m"]);
    let send = ["queue", "send", "work", "{\"n\":0}", "--id", "n-0"];
    assert_eq!(node.ok(&send), "sent 1\n");
    assert_eq!(node.ok(&send), "sent 0, 1 duplicate dropped\n");
    node.ok(&["queue", "send", "work", "not JSON"]);
    let peeked = node.ok(&["queue", "peek", "work"]);
    assert_eq!(peeked.lines().count(), 2);

    let first = node.json(&["queue", "receive", "work"]);
    assert_eq!(first["body"], json!({"n": 0}));
    let token = first["token"].as_str().unwrap();
    let done = node.ok(&["queue", "complete", "work", token]);
    assert_eq!(done, "completed 1\n");
    let again = node.run(&["queue", "complete", "work", token]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");

    // The next message is delivered all the same.
    let second = node.run(&["queue", "receive", "work", "--completed", token]);
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    let second: Value = serde_json::from_slice(&second.stdout).unwrap();
    let token = second["token"].as_str().unwrap();
    node.ok(&["queue", "receive", "work", "--abandoned", token]);
    node.ok(&["queue", "set", "work", "--auto-delete-on-idle", "1h"]);
    let described = node.json(&["queue", "describe", "work", "--json"]);
    assert_eq!(described["dead_letters"], 1, "one delivery was allowed");
    assert_eq!(described["auto_delete_on_idle_seconds"], 3600.0);
    node.ok(&["queue", "resubmit", "work", "2"]);
    let last = node.json(&["queue", "receive", "work", "--complete"]);
    assert_eq!(last["sequence"], 2);
    let listed = node.ok(&["queue", "list"]);
    assert!(
        listed.lines().nth(1).unwrap().starts_with("work"),
        "{listed}"
    );
    node.ok(&["queue", "delete", "work", "--yes"]);
    assert_eq!(node.json(&["queue", "list", "--json"]), json!([]));
}

// proves A3
#[test]
fn a_topic_is_made_changed_and_deleted_with_its_subscriptions_and_rules() {
    let node = Node::start();
    assert_eq!(node.ok(&["topic", "create", "prices"]), "topic prices\n");
    node.ok(&["topic", "set", "prices", "--time-to-live", "7d"]);
    node.ok(&["topic", "set", "prices", "--auto-delete-on-idle", "1h"]);
    let described = node.json(&["topic", "describe", "prices", "--json"]);
    assert_eq!(described["auto_delete_on_idle_seconds"], 3600.0);
    node.ok(&["topic", "subscribe", "prices", "audit"]);
    let sql = [
        "topic",
        "subscribe",
        "prices",
        "heavy",
        "--sql",
        "grams > 100",
    ];
    assert_eq!(node.ok(&sql), "subscription heavy of topic prices\n");
    node.ok(&[
        "topic",
        "set-subscription",
        "prices",
        "heavy",
        "--lock",
        "30s",
    ]);
    let rule = [
        "topic",
        "add-rule",
        "prices",
        "heavy",
        "a red one",
        "--property",
        "colour=red",
    ];
    node.ok(&[&rule[..], &["--action", "REMOVE colour"]].concat());
    node.ok(&[&rule[..], &["--replace", "--label", "fruit"]].concat());
    let described = node.json(&["topic", "describe", "prices", "--json"]);
    assert_eq!(described["time_to_live_seconds"], 604_800.0);
    let heavy = &described["subscriptions"][1];
    assert_eq!(heavy["lock_seconds"], 30.0);
    assert_eq!(heavy["rules"][0]["sql"], "grams > 100");
    let correlation = json!({"label": "fruit", "properties": {"colour": "red"}});
    assert_eq!(heavy["rules"][1]["correlation"], correlation);
    assert_eq!(heavy["rules"][1]["action"], Value::Null, "it was replaced");
    let shown = node.ok(&["topic", "describe", "prices"]);
    assert!(
        shown.contains("rule $Default") && shown.contains("grams > 100"),
        "{shown}"
    );
    node.ok(&["topic", "remove-rule", "prices", "heavy", "a red one"]);
    let listed = node.ok(&["topic", "list"]);
    assert!(
        listed.contains("prices") && listed.contains("heavy"),
        "{listed}"
    );
    let nothing = node.run(&["topic", "set", "prices"]);
    assert_eq!(nothing.status.code(), Some(2));
    node.ok(&["topic", "unsubscribe", "prices", "heavy", "--yes"]);
    node.ok(&["topic", "delete", "prices", "--yes"]);
    assert_eq!(node.json(&["topic", "list", "--json"]), json!([]));
}

#[test]
fn a_queue_is_measured_with_and_without_batches_and_leaves_nothing_behind() {
    let node = Node::start();
    let load = [
        "bench",
        "queue",
        "--connections",
        "2",
        "--seconds",
        "1",
        "--json",
    ];
    for more in [&["--batch", "1"][..], &["--batch", "3", "--apart"]] {
        let measured = node.json(&[&load[..], more].concat());
        assert!(measured["cycles"].is_u64(), "{measured}");
        assert!(measured["own_cpu_micros_per_cycle"].is_f64(), "{measured}");
    }
    assert_eq!(node.json(&["queue", "list", "--json"]), json!([]));
}

// proves Q3
#[test]
fn a_hub_of_the_settings_feeds_a_queue() {
    let node =
        Node::start_with("[hubs.orders]\npartitions = 2\n[queues.work]\nfeed = \"orders\"\n");
    for n in 0..3 {
        node.ok(&["hub", "send", "orders", &format!("{{\"n\":{n}}}")]);
    }
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let wait = ["queue", "receive", "work", "--wait", "30s", "--delete"];
        seen.push(node.json(&wait)["body"]["n"].as_i64().unwrap());
    }
    seen.sort();
    assert_eq!(seen, [0, 1, 2]);
}

// proves P4, P5
#[test]
fn processors_circuits_and_dead_letters_are_managed() {
    // A program that only repeats its input handles no event.
    let node = Node::start_with(
        "[processors.echo]\nhub = \"orders\"\nhandler = { command = [\"cat\"] }\ncheckpoint = { events = 1 }\n",
    );
    node.ok(&["hub", "create", "orders", "--partitions", "1"]);
    node.ok(&["hub", "send", "orders", "{\"n\":1}"]);
    let letters = loop {
        let letters = node.json(&["dlq", "list", "echo", "--json"]);
        if letters != json!([]) {
            break letters;
        }
    };
    assert_eq!(letters[0]["id"], "orders/0@0");
    let shown = node.ok(&["dlq", "show", "echo", "orders/0@0"]);
    assert!(
        shown.contains("neither ok nor error") && shown.contains("\"value\":{\"n\":1}"),
        "{shown}"
    );
    let found = node.json(&["dlq", "list", "echo", "--reason", "time-out", "--json"]);
    assert_eq!(found, json!([]));

    let dry = node.ok(&["dlq", "replay", "echo", "--dry-run"]);
    assert_eq!(dry, "orders/0@0\n");
    let replayed = node.run(&["dlq", "replay", "echo", "--json"]);
    assert_eq!(replayed.status.code(), Some(1), "it failed again");
    let replayed: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(
        (&replayed["handled"], &replayed["failed"][0]["id"]),
        (&json!(0), &json!("orders/0@0"))
    );

    let opened = node.ok(&["circuit", "open", "echo", "--why", "release"]);
    assert!(
        opened.contains("open") && opened.ends_with(": release\n"),
        "{opened}"
    );
    let listed = node.json(&["processor", "list", "--json"]);
    assert_eq!(
        (&listed[0]["name"], &listed[0]["circuit"]),
        (&json!("echo"), &json!("open"))
    );
    let refused = node.run(&["dlq", "replay", "echo"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("highwater circuit close echo"));
    let closed = node.json(&["circuit", "close", "echo", "--json"]);
    assert_eq!(closed["state"], "closed");

    let status = node.ok(&["processor", "status", "echo"]);
    assert!(status.contains("command cat, circuit closed"), "{status}");
    assert_eq!(node.ok(&["dlq", "purge", "echo", "--yes"]), "1 purged\n");
    assert!(node.ok(&["dlq", "list"]).contains("0 on hub echo.dead"));
}
