//! Posts to a receiver that refuses rows, fails, and expects repeats.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use highwater_env::{FolderPolicy, SimDisk};
use highwater_settings::Secrets;
use proptest::prelude::*;
use serde_json::Value;

use super::super::testing::*;
use super::*;
use crate::http::testing::Server;

/// The contents of a receiver that compares row numbers.
#[derive(Default)]
struct Receiver {
    rows: BTreeMap<u64, Value>,
    requests: u64,
    /// One request in this many fails: before the rows are stored, or after.
    fails: u64,
    bytes_max: usize,
}

impl Receiver {
    fn take(&mut self, request: &Request<Bytes>) -> StatusCode {
        self.requests += 1;
        let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let rows: Vec<Value> = serde_json::from_slice(request.body()).unwrap();
        let first: u64 = header("highwater-first-row").parse().unwrap();
        assert_eq!(header("highwater-rows"), rows.len().to_string());
        let last = first + rows.len() as u64 - 1;
        assert_eq!(header("idempotency-key"), format!("job/out/{first}-{last}"));
        if request.body().len() > self.bytes_max {
            return StatusCode::PAYLOAD_TOO_LARGE;
        }
        if rows.iter().any(|row| row["Text"] == "bad") {
            return StatusCode::UNPROCESSABLE_ENTITY;
        }
        if self.fails > 0 && self.requests.is_multiple_of(2 * self.fails) {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        for (number, row) in (first..).zip(rows) {
            let known = self.rows.insert(number, row.clone());
            assert!(
                known.is_none_or(|known| known == row),
                "row {number} changed"
            );
        }
        match self.fails > 0 && self.requests.is_multiple_of(self.fails) {
            true => StatusCode::GATEWAY_TIMEOUT,
            false => StatusCode::OK,
        }
    }
}

fn endpoint(url: &str, change: impl Fn(&mut WebhookOutput)) -> Box<dyn Endpoint> {
    let mut output = WebhookOutput::new(url);
    change(&mut output);
    let context = OutputContext::new("job", "out", Arc::new(SimDisk::new(0)));
    output.open(names(), &context).unwrap()
}

async fn start(receiver: &Arc<Mutex<Receiver>>) -> Server {
    let receiver = Arc::clone(receiver);
    Server::start(move |request| {
        let status = receiver.lock().unwrap().take(&request);
        let mut answer = Response::new(Bytes::from_static(b"as you wish"));
        *answer.status_mut() = status;
        answer
    })
    .await
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    // proves S4
    #[test]
    fn a_receiver_that_goes_by_the_numbers_has_each_row_once(
        mut input in any_rows(60),
        steps in any_steps(),
        bad in prop::collection::btree_set(0..60usize, 0..4),
        fails in 0..4u64,
        bytes_max in 120..2000usize,
    ) {
        let bad: Vec<usize> = bad.into_iter().filter(|bad| *bad < input.len()).collect();
        bad.iter().for_each(|bad| input[*bad].text = "bad".into());
        let receiver = Receiver { fails: if fails > 0 { fails + 2 } else { 0 }, bytes_max, ..Receiver::default() };
        let receiver = Arc::new(Mutex::new(receiver));
        let refused = block_on(async {
            let server = start(&receiver).await;
            play(&input, &steps, || endpoint(&server.url, |output| output.rows_max = 10)).await
        });
        let bad: Vec<u64> = bad.into_iter().map(|bad| bad as u64).collect();
        prop_assert_eq!(refused, bad.clone());
        let numbers = receiver.lock().unwrap().rows.keys().copied().collect::<Vec<_>>();
        let expected = (0..input.len() as u64).filter(|number| !bad.contains(number));
        prop_assert_eq!(numbers, expected.collect::<Vec<_>>());
    }
}

fn row(text: &str) -> Row {
    Row {
        seconds: 0,
        device: Some(1),
        text: text.into(),
    }
}

async fn answered(status: u16, header: Option<(&'static str, &'static str)>) -> EndpointError {
    let server = Server::start(move |_| {
        let mut answer = Response::builder().status(status);
        if let Some((name, value)) = header {
            answer = answer.header(name, value);
        }
        answer.body(Bytes::from_static(b"because")).unwrap()
    })
    .await;
    let mut endpoint = endpoint(&server.url, |_| ());
    endpoint.resume(None).await.unwrap();
    endpoint.write(&rows(7, &[row("a")])).await.unwrap_err()
}

#[tokio::test]
async fn answers_say_what_to_do() {
    let told = answered(429, Some(("retry-after", "17"))).await;
    let EndpointError::Unavailable {
        reason,
        retry_after,
    } = told
    else {
        panic!("{told}");
    };
    assert_eq!(reason, "127.0.0.1 answered 429 Too Many Requests: because");
    assert_eq!(retry_after, Some(Duration::from_secs(17)));
    for status in [408, 500, 503] {
        let told = answered(status, None).await;
        assert!(
            matches!(told, EndpointError::Unavailable { .. }),
            "{status}"
        );
    }
    for status in [400, 409, 413, 422] {
        let told = answered(status, None).await;
        assert!(
            matches!(&told, EndpointError::Refused { rows, .. } if rows[..] == [7]),
            "{status}"
        );
    }
    for status in [301, 401, 403, 404, 410] {
        let told = answered(status, None).await;
        assert!(matches!(told, EndpointError::Unfit { .. }), "{status}");
    }
}

#[tokio::test]
async fn lines_and_headers_go_out_as_asked() {
    let server = Server::start(|request| {
        assert_eq!(request.headers()["authorization"], "Bearer secret");
        assert_eq!(request.headers()["content-type"], "application/x-ndjson");
        let text = "{\"Device\":1,\"Text\":\"a\",\"At\":\"2026-03-01T23:58:00.0000000Z\"}\n";
        assert_eq!(
            request.body(),
            &format!("{text}{}", text.replace("\"a\"", "\"b\""))
        );
        Response::new(Bytes::new())
    })
    .await;
    let mut endpoint = endpoint(&server.url, |output| {
        output.lines = true;
        output.headers = vec![("Authorization".into(), "Bearer secret".into())];
        assert!(!format!("{output:?}").contains("secret"));
    });
    endpoint.resume(None).await.unwrap();
    endpoint
        .write(&rows(0, &[row("a"), row("b")]))
        .await
        .unwrap();
}

// proves G3
#[tokio::test]
async fn a_secret_is_read_when_it_is_used_and_shown_as_its_reference() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    #[allow(clippy::disallowed_methods, reason = "the test makes its own file")]
    std::fs::write(&file, "s3cret\n").unwrap();
    let sent: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&sent);
    let server = Server::start(move |request| {
        let header = &request.headers()["authorization"];
        seen.lock()
            .unwrap()
            .push(header.to_str().unwrap().to_owned());
        Response::new(Bytes::new())
    })
    .await;
    let mut output = WebhookOutput::new(&server.url);
    let reference = format!("Bearer ${{file:{}}}", file.display());
    output.headers = vec![("authorization".into(), reference.clone())];
    let mut context = OutputContext::new("job", "out", Arc::new(SimDisk::new(0)));
    let mut endpoint = output.open(names(), &context).unwrap();
    endpoint.resume(None).await.unwrap();
    let row = Row {
        seconds: 0,
        device: None,
        text: "a".into(),
    };
    endpoint.write(&rows(0, &[row])).await.unwrap();
    assert_eq!(*sent.lock().unwrap(), ["Bearer s3cret"]);
    assert!(!format!("{output:?}").contains("s3cret"));

    context.access.secrets = Secrets::restricted(FolderPolicy::below([]));
    let refused = output.check(&context.access, folder.path()).unwrap_err();
    assert!(refused.contains("secrets.folder"), "{refused}");
    assert!(output.open(names(), &context).is_err());
}
