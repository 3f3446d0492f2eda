//! Fetches the JWKS of an issuer: at the start, regularly, and when a token is signed by an unknown key.
//!
//! Strangers can send tokens of unknown keys, so fetches have a pause between them, and no login waits long for one. A
//! fetch that fails changes nothing: the keys of the last good one stay in use.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use highwater_access::SigningKeys;
use highwater_connect::http::Client;
use hyper::{Request, StatusCode, Uri};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{JwksSource, Tokens, parse};

/// Of one fetch, connecting included.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(super) struct FetchTimes {
    /// Between fetches.
    interval: Duration,
    /// After a failed one.
    retry: Duration,
    /// No fetch begins earlier than this after the end of another ...
    pause: Duration,
    /// ... or of a failed one: an issuer may start after the node.
    failure_pause: Duration,
    /// The longest wait of a login.
    login_wait: Duration,
}

impl Default for FetchTimes {
    fn default() -> FetchTimes {
        FetchTimes {
            interval: Duration::from_secs(600),
            retry: Duration::from_secs(10),
            pause: Duration::from_secs(10),
            failure_pause: Duration::from_secs(1),
            login_wait: Duration::from_secs(3),
        }
    }
}

/// Fetches since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FetchCounts {
    pub(crate) fetches: u64,
    pub(crate) failures: u64,
}

pub(super) struct JwksFetcher {
    client: Client,
    url: Uri,
    times: FetchTimes,
    /// A login needs a fetch.
    requested: Arc<Notify>,
    finished: watch::Sender<FetchProgress>,
}

#[derive(Clone, Copy, Debug, Default)]
struct FetchProgress {
    counts: FetchCounts,
    /// The end of the pause after the last fetch.
    next_earliest: Option<Instant>,
}

impl JwksFetcher {
    pub(super) fn new(client: Client, url: Uri, times: FetchTimes) -> JwksFetcher {
        JwksFetcher {
            client,
            url,
            times,
            requested: Arc::default(),
            finished: watch::Sender::default(),
        }
    }

    pub(super) fn counts(&self) -> FetchCounts {
        self.finished.borrow().counts
    }

    /// Requests a fetch and waits for its end, for a bounded time. If one ended a moment ago, nothing is waited for:
    /// the next begins after the pause.
    pub(super) async fn next_fetch(&self) {
        let mut finished = self.finished.subscribe();
        let earliest = finished.borrow_and_update().next_earliest;
        self.requested.notify_one();
        if earliest.is_none_or(|earliest| earliest <= Instant::now()) {
            let _ = tokio::time::timeout(self.times.login_wait, finished.changed()).await;
        }
    }

    async fn fetch(&self) -> Result<SigningKeys, String> {
        let request = Request::get(self.url.clone()).header("accept", "application/json");
        let request = request.body(Bytes::new()).map_err(|e| e.to_string())?;
        let response = self.client.send(request).await.map_err(|e| e.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("the answer is {}", response.status()));
        }
        let text = std::str::from_utf8(response.body()).map_err(|e| e.to_string())?;
        parse(text).map_err(|error| error.to_string())
    }

    /// Records the end of a fetch. Returns the pause after it, and the time until the next one.
    fn finish(&self, is_ok: bool) -> (Duration, Duration) {
        let times = &self.times;
        let (pause, next) = match is_ok {
            true => (times.pause, times.interval),
            false => (times.failure_pause, times.retry),
        };
        self.finished.send_modify(|progress| {
            progress.counts.fetches += 1;
            progress.counts.failures += u64::from(!is_ok);
            progress.next_earliest = Some(Instant::now() + pause);
        });
        (pause, next)
    }
}

impl Drop for JwksFetcher {
    /// Wakes the task, which then ends.
    fn drop(&mut self) {
        self.requested.notify_one();
    }
}

/// Fetches for as long as the tokens are in use.
pub(super) async fn run(tokens: Weak<Tokens>) {
    loop {
        let Some(tokens) = tokens.upgrade() else {
            return;
        };
        let JwksSource::Fetched(fetcher) = &tokens.source else {
            return;
        };
        let fetched = fetcher.fetch().await;
        let is_ok = fetched.is_ok();
        match fetched {
            Ok(keys) => tokens.replace_signing_keys(keys),
            Err(error) => {
                tracing::warn!("the keys of the tokens' issuer were not fetched: {error}")
            }
        }
        let (pause, next) = fetcher.finish(is_ok);
        let requested = fetcher.requested.clone();
        drop(tokens);
        tokio::time::sleep(pause).await;
        tokio::select! {
            () = tokio::time::sleep(next.saturating_sub(pause)) => {}
            () = requested.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use highwater_access::{Key, KeyScope, Keys, Rights, TokenError, TokenPolicy};
    use highwater_connect::http::Options;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const NOW_MS: i64 = 1_500_000;

    /// An issuer whose answer can change.
    struct Issuer {
        url: Uri,
        answer: Arc<Mutex<String>>,
    }

    impl Issuer {
        async fn start(answer: String) -> Issuer {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/jwks", listener.local_addr().unwrap());
            let answer = Arc::new(Mutex::new(answer));
            let served = answer.clone();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let answer = served.lock().unwrap().clone();
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
            Issuer {
                url: url.parse().unwrap(),
                answer,
            }
        }

        fn answer(&self, answer: String) {
            *self.answer.lock().unwrap() = answer;
        }
    }

    fn ok(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn vectors() -> Value {
        serde_json::from_str(include_str!("../../../access/src/token_vectors.json")).unwrap()
    }

    /// A JWKS with the keys of one type.
    fn jwks(kind: &str) -> String {
        let mut jwks = vectors()["jwks"].clone();
        let keys = jwks["keys"].as_array_mut().unwrap();
        keys.retain(|key| key["kty"] == kind);
        jwks.to_string()
    }

    fn times() -> FetchTimes {
        FetchTimes {
            interval: Duration::from_secs(60),
            retry: Duration::from_secs(60),
            pause: Duration::from_millis(50),
            failure_pause: Duration::from_millis(5),
            login_wait: Duration::from_secs(5),
        }
    }

    fn tokens(url: Uri, times: FetchTimes) -> Arc<Tokens> {
        let policy = TokenPolicy {
            issuer: "https://id.example".into(),
            audience: "highwater".into(),
            key_claim: "sub".into(),
        };
        let key = Key::new("app", "s3cret", Rights::ALL, KeyScope::UNLIMITED);
        let client = Client::new(Options::default());
        let source = JwksSource::Fetched(JwksFetcher::new(client, url, times));
        let keys = Arc::new(Keys::new(vec![key]));
        let tokens = Tokens::new(policy, keys, SigningKeys::default(), source);
        tokio::spawn(run(Arc::downgrade(&tokens)));
        tokens
    }

    async fn verify(tokens: &Tokens, name: &str) -> Result<String, TokenError> {
        let token = vectors()[name].as_str().unwrap().to_owned();
        let login = tokens.verify(&token, NOW_MS).await;
        login.map(|login| login.key.name.clone())
    }

    // proves G4
    #[tokio::test]
    async fn a_token_of_a_new_key_makes_the_node_fetch_the_keys_again() {
        let issuer = Issuer::start(ok(&jwks("RSA"))).await;
        let tokens = tokens(issuer.url.clone(), times());
        assert_eq!(verify(&tokens, "rsa").await, Ok("app".into()));
        assert_eq!(verify(&tokens, "ec").await, Err(TokenError::UnknownSigner));
        issuer.answer(ok(&jwks("EC")));
        tokio::time::sleep(times().pause).await;
        assert_eq!(verify(&tokens, "ec").await, Ok("app".into()));
        assert_eq!(verify(&tokens, "rsa").await, Err(TokenError::UnknownSigner));
    }

    // proves G4
    #[tokio::test]
    async fn after_a_failed_fetch_the_last_good_keys_count() {
        let issuer = Issuer::start(ok(&jwks("RSA"))).await;
        let tokens = tokens(issuer.url.clone(), times());
        assert_eq!(verify(&tokens, "rsa").await, Ok("app".into()));
        let failures = [
            "HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n".to_owned(),
            ok("{\"keys\":[]}"),
            ok("no JSON"),
            String::new(),
        ];
        for (failed, answer) in (1..).zip(failures) {
            issuer.answer(answer);
            while tokens.fetch_counts().unwrap().failures < failed {
                let refused = verify(&tokens, "unknown_signer").await;
                assert_eq!(refused, Err(TokenError::UnknownSigner));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(verify(&tokens, "rsa").await, Ok("app".into()));
        }
    }

    #[tokio::test]
    async fn an_issuer_may_start_after_the_node() {
        let issuer =
            Issuer::start("HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n".into()).await;
        let slow = FetchTimes {
            pause: Duration::from_secs(60),
            ..times()
        };
        let tokens = tokens(issuer.url.clone(), slow);
        assert_eq!(verify(&tokens, "rsa").await, Err(TokenError::UnknownSigner));
        issuer.answer(ok(&jwks("RSA")));
        let accepted = async {
            while verify(&tokens, "rsa").await.is_err() {
                tokio::time::sleep(slow.failure_pause).await;
            }
        };
        let limit = Duration::from_secs(20);
        assert!(tokio::time::timeout(limit, accepted).await.is_ok());
    }

    // proves G2
    #[tokio::test]
    async fn tokens_of_unknown_keys_cause_few_fetches_and_short_waits() {
        let issuer = Issuer::start(ok(&jwks("RSA"))).await;
        let patient = tokens(
            issuer.url.clone(),
            FetchTimes {
                pause: Duration::from_secs(60),
                ..times()
            },
        );
        for _ in 0..100 {
            assert!(verify(&patient, "unknown_signer").await.is_err());
        }
        assert_eq!(patient.fetch_counts().unwrap().fetches, 1);
        // Accepts connections and never responds.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let impatient = tokens(
            url.parse().unwrap(),
            FetchTimes {
                login_wait: Duration::from_millis(20),
                ..times()
            },
        );
        let refused = tokio::time::timeout(Duration::from_secs(4), verify(&impatient, "rsa"));
        assert_eq!(refused.await.unwrap(), Err(TokenError::UnknownSigner));
    }
}
