//! The console as seen by a browser: login, sessions, cross-site requests, pages and their live stream.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use highwater_access::{AuditEvent, AuditLog, Key, KeyScope, Rights};
use highwater_env::RealClock;
use highwater_server::http::{Backend, Options};
use serde_json::{Value, json};

use crate::http::node::{Answer, Node, Wire, call, memory, node, options, request, start_on};
use crate::whole_node;

const HTML: &str = "accept: text/html";
const FORM: &str = "content-type: application/x-www-form-urlencoded";
const RIGHT: &str = "name=root&secret=root-secret&next=%2Fconsole%2Fjobs";

#[derive(Default)]
struct AuditEvents(Mutex<Vec<AuditEvent>>);

impl AuditLog for AuditEvents {
    fn record(&self, event: AuditEvent) {
        self.0.lock().unwrap().push(event);
    }
}

/// A node with the key `root`.
async fn guarded(options: Options) -> (Node, Arc<AuditEvents>) {
    let audit = Arc::new(AuditEvents::default());
    let backend = Backend {
        audit: audit.clone(),
        ..Backend::new(Arc::new(memory()))
    };
    let root = Key::new("root", "root-secret", Rights::ALL, KeyScope::UNLIMITED);
    (start_on(options, vec![root], backend).await, audit)
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let mut lines = answer.head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The `cookie` header of a session.
fn cookie(login: &Answer) -> String {
    let cookie = header(login, "set-cookie").expect("a cookie");
    let (pair, _) = cookie.split_once(';').unwrap();
    format!("cookie: other=1; {pair}")
}

/// The session's token, as the page carries it.
fn csrf(page: &Answer) -> String {
    let (_, rest) = page.body.split_once("name=\"csrf\" content=\"").unwrap();
    let (token, _) = rest.split_once('"').unwrap();
    assert!(token.len() >= 43, "{token}");
    format!("x-highwater-csrf: {token}")
}

// proves U3
#[tokio::test]
async fn a_login_gives_a_guarded_cookie_and_leads_to_the_page() {
    let (node, audit) = guarded(options()).await;
    let asked = node.call("GET /console/jobs?a=b", &[HTML], "").await;
    assert_eq!(asked.status, 303);
    let login = header(&asked, "location").unwrap();
    assert_eq!(login, "/console/login?next=%2Fconsole%2Fjobs%3Fa%3Db");
    assert_eq!(node.get(login).await.status, 200);

    let done = node.call("POST /console/login", &[FORM], RIGHT).await;
    assert_eq!(done.status, 303);
    assert_eq!(header(&done, "location"), Some("/console/jobs"));
    let flags = header(&done, "set-cookie").unwrap();
    assert!(flags.starts_with("highwater-session="), "{flags}");
    for flag in [
        "; HttpOnly",
        "; SameSite=Strict",
        "; Path=/",
        "; Max-Age=43200",
    ] {
        assert!(flags.contains(flag), "{flags}");
    }
    assert!(
        !flags.contains("Secure"),
        "a cookie of plain HTTP would be lost"
    );
    let page = node
        .call("GET /console/jobs", &[HTML, &cookie(&done)], "")
        .await;
    assert_eq!(page.status, 200);
    let elsewhere = RIGHT.replace("%2Fconsole%2Fjobs", "https%3A%2F%2Fevil.example");
    let done = node.call("POST /console/login", &[FORM], elsewhere).await;
    assert_eq!(header(&done, "location"), Some("/"));
    let events = audit.0.lock().unwrap();
    assert_eq!(
        (&*events[0].who, &*events[0].operation, &*events[0].outcome),
        ("root", "login", "ok")
    );
}

// proves U3
#[tokio::test]
async fn a_wrong_login_is_delayed_counted_and_recorded() {
    let (node, audit) = guarded(options()).await;
    let started = Instant::now();
    for wrong in ["name=root&secret=wrong1", "name=nobody&secret=root-secret"] {
        let answer = node.call("POST /console/login", &[FORM, HTML], wrong).await;
        assert_eq!(answer.status, 401, "{}", answer.body);
        assert!(answer.body.contains("the key or its secret is wrong"));
        assert!(header(&answer, "set-cookie").is_none());
        assert!(!answer.body.contains("wrong1"), "the secret is not shown");
    }
    assert!(started.elapsed() >= Duration::from_millis(300));
    let events = audit.0.lock().unwrap().clone();
    let refused: Vec<&str> = events
        .iter()
        .filter(|event| event.outcome == "unauthorized")
        .map(|event| &*event.who)
        .collect();
    assert_eq!(refused, ["root", "nobody"]);
    let metrics = node
        .call(
            "GET /metrics",
            &["authorization: Bearer root:root-secret"],
            "",
        )
        .await;
    assert!(
        metrics
            .body
            .contains("highwater_http_logins_refused_total 2")
    );
}

// proves U3
#[tokio::test]
async fn requests_of_other_sites_are_refused() {
    let (node, _) = guarded(options()).await;
    let evil = "origin: https://evil.example";
    let posted = node.call("POST /console/login", &[FORM, evil], RIGHT).await;
    assert_eq!(posted.status, 403);
    let login = node.call("POST /console/login", &[FORM], RIGHT).await;
    let cookie = cookie(&login);
    let page = node.call("GET /", &[HTML, &cookie], "").await;
    let token = csrf(&page);
    let create = async |headers: &[&str]| {
        let headers = [&[&*cookie], headers].concat();
        node.call("POST /api/hubs", &headers, r#"{"name":"new"}"#)
            .await
    };
    create(&[]).await.is(403, "forbidden");
    create(&["x-highwater-csrf: guessed"])
        .await
        .is(403, "forbidden");
    create(&[&token, evil]).await.is(403, "forbidden");
    create(&[&token, "sec-fetch-site: cross-site"])
        .await
        .is(403, "forbidden");
    assert_eq!(create(&[&token]).await.status, 201);
    let read = node.call("GET /api/hubs", &[&cookie], "").await;
    assert_eq!(read.status, 200, "reading needs no token");
}

// proves U3
#[tokio::test]
async fn a_logout_ends_the_session_and_scripts_are_not_asked_for_a_password() {
    let (node, _) = guarded(options()).await;
    let login = node.call("POST /console/login", &[FORM], RIGHT).await;
    let cookie = cookie(&login);
    let token = csrf(&node.call("GET /", &[HTML, &cookie], "").await);
    node.call("POST /console/logout", &[&cookie], "")
        .await
        .is(403, "forbidden");
    let out = node
        .call("POST /console/logout", &[&cookie, &token], "")
        .await;
    assert_eq!(out.status, 204);
    assert!(header(&out, "set-cookie").unwrap().contains("Max-Age=0"));
    let after = node
        .call(
            "GET /console/session",
            &[&cookie, "sec-fetch-mode: cors"],
            "",
        )
        .await;
    assert_eq!(
        (after.status, header(&after, "www-authenticate")),
        (401, None)
    );
    let program = node.get("/api/hubs").await;
    assert!(header(&program, "www-authenticate").is_some());
}

/// The next event of a stream of this kind.
async fn event(wire: &mut Wire, kind: &str) -> Value {
    loop {
        let block = wire.block().await.expect("the stream goes on");
        let Some(rest) = block.strip_prefix(&format!("event: {kind}\n")) else {
            continue;
        };
        return serde_json::from_str(rest.strip_prefix("data: ").unwrap()).unwrap();
    }
}

async fn watch(node: &Node, page: &str, headers: &[&str]) -> Wire {
    let mut wire = node.connect().await;
    let line = format!("GET /console/live?page={page}");
    wire.send(&request(&line, headers, b"")).await;
    let head = wire.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    wire
}

// proves U3
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_out_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[[keys]]\nname = \"root\"\nsecret = \"root-secret\"\n\
        rights = [\"send\", \"listen\", \"manage\", \"deploy\"]\n";
    let node = whole_node::start(folder.path(), settings, Arc::new(RealClock::new())).await;
    let address = node.http_address().unwrap();
    let root = "authorization: Bearer root:root-secret";
    let new = r#"{"name":"guest","rights":["listen"]}"#;
    let added = call(address, "POST /api/keys", &[root], new).await.json();
    let form = format!(
        "name=guest&secret={}",
        added["secret"].as_str().unwrap().replace('+', "%2B")
    );
    let login = call(address, "POST /console/login", &[FORM], form).await;
    let cookie = cookie(&login);
    let page = async || call(address, "GET /", &[HTML, &cookie], "").await.status;
    assert_eq!(page().await, 200);
    let mut wire = Wire::connect(address).await;
    wire.send(&request("GET /console/live?page=/", &[&cookie], b""))
        .await;
    event(&mut wire, "panel").await;
    let revoked = call(address, "DELETE /api/keys/guest", &[root], "").await;
    assert_eq!(revoked.status, 204);
    assert_eq!(page().await, 303);
    event(&mut wire, "logout").await;
    node.stop().await;
}

// proves U2
#[tokio::test]
async fn pages_load_nothing_from_elsewhere_and_run_no_inline_script() {
    let node = node().await;
    for path in ["/", "/console/jobs"] {
        let page = node.call(&format!("GET {path}"), &[HTML], "").await;
        assert_eq!(page.status, 200, "{}", page.body);
        let policy = header(&page, "content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'; ") && !policy.contains("unsafe"));
        assert!(!page.body.contains(" style=") && !page.body.contains("<style"));
        assert!(!page.body.contains("<script>") && !page.body.contains(" onclick="));
        for (_, rest) in page.body.split("src=\"").skip(1).map(|rest| ("", rest)) {
            assert!(rest.starts_with("/console/assets/"), "{rest}");
        }
    }
    let script = node.get("/console/assets/shell.js?v=1").await;
    assert_eq!(script.status, 200);
    let tag = format!("if-none-match: {}", header(&script, "etag").unwrap());
    let again = node.call("GET /console/assets/shell.js", &[&tag], "").await;
    assert_eq!((again.status, &*again.body), (304, ""));
    node.get("/console/assets/../lib.rs")
        .await
        .is(404, "not_found");
    let missing = node.call("GET /console/jobs", &[], "").await;
    assert_eq!(missing.status, 200);
}

// proves U2
#[tokio::test]
async fn an_open_page_gets_the_panels_that_change() {
    let node = node().await;
    let mut wire = watch(&node, "/", &[]).await;
    assert!(event(&mut wire, "hello").await["version"].is_string());
    for id in ["places", "heading", "figures", "problems"] {
        assert_eq!(event(&mut wire, "panel").await["id"], id);
    }
    let mut again = watch(&node, "/", &[]).await;
    event(&mut again, "hello").await;
    node.post("/api/hubs", "application/json", r#"{"name":"new"}"#)
        .await;
    loop {
        let panel = event(&mut again, "panel").await;
        if panel["id"] == "hubs"
            && panel["html"]
                .as_str()
                .unwrap()
                .contains("/console/hubs/new")
        {
            break;
        }
    }
    for page in ["", "/api/hubs", "/console/assets/shell.js", "/nothing"] {
        let line = format!("GET /console/live?page={page}");
        node.call(&line, &[], "").await.is(404, "not_found");
    }
}

#[tokio::test]
async fn the_console_can_be_switched_off() {
    let (node, _) = guarded(Options {
        console: false,
        ..options()
    })
    .await;
    let root = "authorization: Bearer root:root-secret";
    for line in [
        "GET /",
        "GET /console/jobs",
        "GET /console/live?page=/",
        "GET /console/assets/shell.js",
    ] {
        node.call(line, &[root], "").await.is(404, "not_found");
    }
    node.call("POST /console/login", &[FORM], RIGHT)
        .await
        .is(404, "not_found");
}

// proves U2
#[tokio::test(flavor = "multi_thread")]
async fn a_jobs_page_has_its_query_plan_and_partitions_and_texts_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[hubs.in]\npartitions = 2\n[hubs.out]\npartitions = 1\n";
    let node = whole_node::start(folder.path(), settings, Arc::new(RealClock::new())).await;
    let address = node.http_address().unwrap();
    let file = "query = \"q.saql\"\nstart = \"beginning\"\n[inputs.numbers]\nhub = \"in\"\n\
        [outputs.out]\ntype = \"hub\"\nhub = \"out\"\n";
    let query = "SELECT '<script>alert(1)</script>' AS x INTO out FROM numbers";
    let job = json!({"files": {"job.toml": file, "q.saql": query}});
    let made = call(address, "PUT /api/jobs/copies", &[], job.to_string()).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let files = call(address, "GET /api/jobs/copies/files", &[], "").await;
    assert_eq!(files.json(), job, "as they were sent");
    let page = loop {
        let page = call(address, "GET /console/jobs/copies", &[HTML], "").await;
        assert_eq!(page.status, 200, "{}", page.body);
        if page.body.contains("numbers / 1") && page.body.contains("class=\"plan\"") {
            break page.body;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(page.contains("<span class=\"k\">SELECT</span>"));
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script>alert"));
    let none = call(address, "GET /console/jobs/none", &[HTML], "").await;
    assert_eq!(none.status, 404);
    assert!(none.body.contains("<h1>") && none.body.contains("there is no job `none` (not_found)"));
    call(address, "GET /console/jobs/none", &[], "")
        .await
        .is(404, "not_found");
    node.stop().await;
}
