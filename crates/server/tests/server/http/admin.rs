//! Hubs managed, the node watched.

use std::path::Path;
use std::sync::Arc;

use highwater_env::disk::Faults;
use highwater_env::{SimClock, SimDisk};
use highwater_hub::Hub;
use highwater_server::config::TlsSettings;
use highwater_server::http::{App, Options, Server};
use serde_json::json;

use crate::http::node::{Node, memory, node, node_on, node_with, options};

#[tokio::test]
async fn hubs_are_made_shown_and_deleted() {
    let node = node().await;
    let body = r#"{"name":"t","partitions":2,"retention":"12h","retention_bytes":1000,"cleanup":"compact"}"#;
    let made = node.post("/api/hubs", "application/json", body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    node.post("/api/hubs", "application/json", body)
        .await
        .is(409, "exists");
    node.post("/hubs/t/partitions/1/messages?key=k", "text/plain", "x")
        .await;
    let shown = node.get("/api/hubs/t").await.json();
    assert_eq!(shown["retention_seconds"], 12 * 3600);
    assert_eq!(shown["cleanup"], "compact");
    let partition = &shown["places"][1];
    assert_eq!(
        (&partition["start"], &partition["end"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(partition["last"], "2026-01-01T00:00:00.123Z");
    let names: Vec<_> = node.get("/api/hubs").await.json()["hubs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hub| hub["name"].clone())
        .collect();
    assert_eq!(names, ["h", "t"]);
    assert_eq!(node.call("DELETE /api/hubs/t", &[], "").await.status, 204);
    node.call("DELETE /api/hubs/t", &[], "")
        .await
        .is(404, "not_found");
    node.get("/api/hubs/t").await.is(404, "not_found");
}

#[tokio::test]
async fn a_hub_is_changed_only_in_what_is_named() {
    let node = node().await;
    let patch = async |body: &str| node.call("PATCH /api/hubs/h", &[], body).await;
    let changed = patch(r#"{"partitions":6,"retention":"2d","retention_bytes":1000}"#).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let changed = patch(r#"{"retention_bytes":null}"#).await.json();
    let facts = ["partitions", "retention_seconds", "retention_bytes"].map(|name| &changed[name]);
    assert_eq!(facts, [&json!(6), &json!(2 * 24 * 3600), &json!(null)]);
    let sent = node
        .post("/hubs/h/partitions/5/messages", "text/plain", "x")
        .await;
    assert_eq!(sent.status, 201);

    let before = node.get("/api/hubs/h").await.body;
    for body in [
        r#"{"partitions":5,"retention":"9d"}"#,
        r#"{"partitions":1025,"retention":"9d"}"#,
        r#"{"partitions":7,"retention":"soon"}"#,
        r#"{"name":"other"}"#,
        r#"{"colour":"red"}"#,
        "nonsense",
    ] {
        patch(body).await.is(400, "bad_request");
    }
    assert_eq!(node.get("/api/hubs/h").await.body, before);
}

#[tokio::test]
async fn the_beginning_of_a_partition_is_forgotten_on_demand() {
    let node = node().await;
    for n in 0..5 {
        let path = "/hubs/h/partitions/1/messages";
        node.post(path, "text/plain", &n.to_string()).await;
    }
    let trim = async |body: &str| {
        let path = "/api/hubs/h/partitions/1/trim";
        node.post(path, "application/json", body).await
    };
    for (body, start) in [
        (r#"{"before":2}"#, 2),
        (r#"{"before":"3"}"#, 3),
        (r#"{"before":1}"#, 3),
        // All of them were taken in later.
        (r#"{"before":"2026-01-01T00:00:00Z"}"#, 3),
        (r#"{"before":"2026-01-02T00:00:00Z"}"#, 5),
    ] {
        let expected = json!({"partition": 1, "start": start});
        assert_eq!(trim(body).await.json(), expected, "{body}");
    }
    assert_eq!(node.messages(1).await, Vec::<serde_json::Value>::new());
    for body in [r#"{"before":6}"#, r#"{"before":"soon"}"#, "{}", "nonsense"] {
        trim(body).await.is(400, "bad_request");
    }
    node.post("/api/hubs/h/partitions/4/trim", "", r#"{"before":0}"#)
        .await
        .is(404, "not_found");
}

#[tokio::test]
async fn silence_can_be_said_and_is_no_message() {
    let node = node().await;
    let path = "/hubs/h/partitions/1/messages";
    let say = async || {
        let path = "/api/hubs/h/partitions/1/punctuate";
        node.post(path, "", "").await.json()
    };
    node.post(path, "application/json", "1").await;
    let time = "2026-01-01T00:00:00.123Z";
    assert_eq!(
        say().await,
        json!({"partition": 1, "offset": 1, "time": time})
    );
    node.post(path, "application/json", "2").await;
    say().await;
    let page = node.get(path).await.json();
    let values: Vec<_> = page["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["value"].clone())
        .collect();
    assert_eq!(values, [json!(1), json!(2)]);
    assert_eq!((&page["next"], &page["end"]), (&json!(4), &json!(4)));
    node.call("GET /api/hubs/h/partitions/1/punctuate", &[], "")
        .await
        .is(405, "method_not_allowed");
    node.post("/api/hubs/h/partitions/4/punctuate", "", "")
        .await
        .is(404, "not_found");
}

#[tokio::test]
async fn hubs_of_the_node_itself_are_not_for_clients() {
    let node = node().await;
    let spec = highwater_log::HubSpec {
        name: highwater_log::HubName::new("__groups").unwrap(),
        partitions: 1,
        settings: Default::default(),
    };
    node.log.create(spec).await.unwrap();
    for (line, body) in [
        ("DELETE /api/hubs/__groups", ""),
        ("PATCH /api/hubs/__groups", r#"{"partitions":2}"#),
        (
            "POST /api/hubs/__groups/partitions/0/trim",
            r#"{"before":0}"#,
        ),
        ("POST /api/hubs/__groups/partitions/0/punctuate", ""),
        ("POST /hubs/__groups/messages", "x"),
    ] {
        node.call(line, &[], body).await.is(403, "forbidden");
    }
}

#[tokio::test]
async fn a_hub_that_cannot_be_is_refused() {
    let node = node().await;
    for body in [
        r#"{"name":"a b"}"#,
        r#"{"name":"__x"}"#,
        r#"{"name":"x","partitions":0}"#,
        r#"{"name":"x","retention":"soon"}"#,
        r#"{"name":"x","cleanup":"maybe"}"#,
        r#"{"name":"x","colour":"red"}"#,
        r#"{"partitions":1}"#,
        "nonsense",
    ] {
        node.post("/api/hubs", "application/json", body)
            .await
            .is(400, "bad_request");
    }
}

#[tokio::test]
async fn what_is_not_there_is_told_apart_from_what_is_not_allowed() {
    let node = node().await;
    node.get("/nothing/here").await.is(404, "not_found");
    node.get("/a/b/c/d/e/f/g").await.is(404, "not_found");
    node.call("PUT /api/hubs", &[], "")
        .await
        .is(405, "method_not_allowed");
    node.call("DELETE /hubs/h/messages", &[], "")
        .await
        .is(405, "method_not_allowed");
    assert_eq!(node.get("/api/groups").await.json(), json!({"groups": []}));
    node.get("/api/groups/g").await.is(404, "not_found");
}

#[tokio::test]
async fn the_metrics_count() {
    let node = node().await;
    node.post("/hubs/h/partitions/3/messages", "text/plain", "12345")
        .await;
    node.get("/nothing").await;
    let page = node.get("/metrics").await.body;
    for line in [
        "highwater_http_requests_total{class=\"2xx\"} 1",
        "highwater_http_requests_total{class=\"4xx\"} 1",
        "highwater_http_events_total 1",
        "highwater_http_event_bytes_total 5",
        "highwater_hub_end_offsets{hub=\"h\"} 1",
        "highwater_hub_partitions{hub=\"h\"} 4",
        "# TYPE highwater_http_request_seconds histogram",
        "highwater_http_request_seconds_count 2",
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is not in\n{page}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_the_disk_has_stopped_is_named_everywhere() {
    let (disk, clock) = (SimDisk::new(1), Arc::new(SimClock::at_unix_nanos(0)));
    let shared = Arc::new(disk.clone());
    let hub = Hub::open(
        shared,
        Path::new("data"),
        highwater_hub::Options::default(),
        clock,
        &|_| {},
    )
    .unwrap();
    let node = node_on(hub.clone()).await;
    let path = "/hubs/h/partitions/1/messages";
    assert_eq!(node.post(path, "text/plain", "kept").await.status, 201);
    let ready = node.get("/readyz").await.json();
    assert_eq!(ready, json!({"ready": true, "stopped": []}));
    disk.set_faults(Faults {
        syncs: 1,
        ..Faults::default()
    });
    node.post(path, "text/plain", "lost")
        .await
        .is(503, "stopped");

    let ready = node.get("/readyz").await;
    assert_eq!(ready.status, 200, "the other partitions work");
    assert_eq!(ready.json()["stopped"], json!(["h/1"]));
    let partitions = node.get("/api/hubs/h").await.json()["places"].take();
    assert_eq!(
        (&partitions[0]["stopped"], &partitions[1]["segments"]),
        (&json!(null), &json!(1))
    );
    let reason = partitions[1]["stopped"].as_str().unwrap();
    assert!(
        reason.starts_with("`h/1` accepts no writes: could not sync"),
        "{reason}"
    );
    let page = node.get("/metrics").await.body;
    for line in [
        "highwater_hub_stopped_partitions{hub=\"h\"} 1",
        "highwater_hub_append_records_total 1",
        "highwater_hub_syncs_total 1",
        "highwater_hub_reads_total{from=\"disk\"} 0",
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is not in\n{page}"
        );
    }
    hub.stop();
}

#[tokio::test]
async fn a_node_that_is_reading_its_log_says_how_far_it_is() {
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let app = App::new(options(), Arc::default(), None, clock.clone());
    let server = Server::bind(app.clone()).await.unwrap();
    let node = Node {
        address: server.address().unwrap(),
        log: Arc::new(memory()),
        app: app.clone(),
        clock,
    };
    tokio::spawn(server.run());
    assert_eq!(node.get("/healthz").await.status, 200);
    node.get("/readyz").await.is(503, "starting");
    app.progress()
        .total
        .store(100, std::sync::atomic::Ordering::Relaxed);
    app.progress()
        .done
        .store(40, std::sync::atomic::Ordering::Relaxed);
    let answer = node.post("/hubs/h/messages", "text/plain", "x").await;
    answer.is(503, "starting");
    assert!(
        answer.body.contains("40 of 100 partitions"),
        "{}",
        answer.body
    );
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
}

// proves U3
#[tokio::test]
async fn with_a_certificate_http_is_https() {
    use rustls_pki_types::pem::PemObject;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/http");
    let files = TlsSettings {
        cert: format!("{folder}/cert.pem").into(),
        key: format!("{folder}/key.pem").into(),
        client_auth: None,
    };
    let node = node_with(Options {
        tls: Some(files.clone()),
        ..options()
    })
    .await;
    let mut roots = rustls::RootCertStore::empty();
    let cert =
        rustls_pki_types::CertificateDer::from_pem_slice(include_bytes!("cert.pem")).unwrap();
    roots.add(cert).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = tokio::net::TcpStream::connect(node.address).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut text = String::new();
    // A peer that closes without a TLS goodbye is an error here, after the text has come.
    let _ = stream.read_to_string(&mut text).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");

    let missing = Options {
        tls: Some(TlsSettings {
            cert: files.key.clone(),
            ..files
        }),
        ..options()
    };
    let app = App::new(missing, Arc::default(), None, node.clock.clone());
    let error = Server::bind(app).await.err().unwrap().to_string();
    assert!(error.contains("holds no certificate"), "{error}");
}
