//! Messages out, and a look at them.

use std::time::Duration;

use highwater_queue::{Done, Exchange, Mode, Most, Part, Queue, Receive, SessionLock};
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use serde::Deserialize;

use super::json;
use super::read_json;
use super::send::Sequences;
use super::settle::{Outcomes, tokens};
use crate::http::app::App;
use crate::http::error::Error;
use crate::http::read::{count, wait};
use crate::http::reply::{self, Payload, Reply};
use crate::text::parameter;

const MESSAGES_MAX: u64 = 10_000;
const PEEK_DEFAULT: u64 = 100;

/// What a receiver that comes for more hands in.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HandedIn {
    complete: Vec<String>,
    abandon: Vec<String>,
}

impl HandedIn {
    async fn read(app: &App, body: Incoming) -> Result<HandedIn, Error> {
        match body.is_end_stream() {
            true => Ok(HandedIn::default()),
            false => read_json(app, body, "{\"complete\":[\"1-9c41d07f\"]}").await,
        }
    }
}

pub async fn receive(
    app: &App,
    queue: &Queue,
    part: Part,
    query: Option<&str>,
    body: Incoming,
) -> Result<Reply, Error> {
    let receive = Receive {
        part,
        most: Most {
            count: count(query, "max", 1)?.min(MESSAGES_MAX) as usize,
            bytes: app.options.read_bytes_max,
        },
        mode: mode(query)?,
        wait: wait(query, app.options.wait_max)?,
        session: session(query)?,
    };
    let given = HandedIn::read(app, body).await?;
    let done = Done {
        complete: tokens(&given.complete),
        abandon: tokens(&given.abandon),
    };
    // Whoever waits holds nothing; what is received is counted when it is there. A stop of the node ends the
    // wait and not the request, because what was handed in counts.
    let mut exchange = std::pin::pin!(queue.exchange(done, receive));
    let exchange = tokio::select! {
        biased;
        exchange = &mut exchange => exchange?,
        () = app.stopped() => {
            queue.end_waits().await;
            exchange.await?
        }
    };
    told(app, &given, exchange)
}

fn told(app: &App, given: &HandedIn, exchange: Exchange) -> Result<Reply, Error> {
    let Exchange { settled, received } = exchange;
    if settled.is_empty() {
        return answer(app, json::deliveries(&received?, None));
    }
    let given = given.complete.iter().chain(&given.abandon);
    let outcomes = Outcomes::of(&settled, given);
    match received {
        Ok(got) => answer(app, json::deliveries(&got, Some(&outcomes))),
        Err(refusal) => {
            let mut error = Error::from(refusal);
            error.more = Some(Box::new(serde_json::json!(outcomes)));
            Err(error)
        }
    }
}

pub async fn deferred(
    app: &App,
    queue: &Queue,
    part: Part,
    query: Option<&str>,
    body: Incoming,
) -> Result<Reply, Error> {
    let (mode, session) = (mode(query)?, session(query)?);
    let seqs = Sequences::read(app, body).await?;
    let got = queue.receive_deferred(part, seqs, mode, session).await?;
    answer(app, json::deliveries(&got, None))
}

pub async fn peek(
    app: &App,
    queue: &Queue,
    part: Part,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let from = count(query, "from", 1)?;
    let max = count(query, "max", PEEK_DEFAULT)?.min(MESSAGES_MAX) as usize;
    let peeked = queue.peek(part, from, max).await?;
    answer(app, json::peeked(&peeked))
}

fn answer(app: &App, body: Vec<u8>) -> Result<Reply, Error> {
    // A message that was handed out must be told of, so this is counted and never refused.
    let payload = match app.budget.take(body.len()) {
        Ok(permit) => Payload::whole(body).holding(permit),
        Err(_) => Payload::whole(body),
    };
    Ok(reply::typed(StatusCode::OK, reply::JSON, payload))
}

fn mode(query: Option<&str>) -> Result<Mode, Error> {
    match parameter(query, "mode").as_deref() {
        None | Some("lock") => Ok(Mode::PeekLock),
        Some("delete") => Ok(Mode::ReceiveAndDelete),
        Some(other) => {
            let message = format!("mode cannot be `{other}`");
            Err(Error::bad(message, "use lock or delete"))
        }
    }
}

/// A session that the caller has accepted.
fn session(query: Option<&str>) -> Result<Option<SessionLock>, Error> {
    let (name, token) = (
        parameter(query, "session"),
        parameter(query, "session_token"),
    );
    match (name, token) {
        (None, None) => Ok(None),
        (Some(name), Some(token)) => Ok(Some(session_lock(name.into_owned(), &token)?)),
        _ => Err(Error::bad(
            "a session needs its token, and a token its session",
            "give session and session_token as they came from sessions/accept",
        )),
    }
}

pub fn session_lock(session: String, token: &str) -> Result<SessionLock, Error> {
    let number = u64::from_str_radix(token, 16);
    let number = number.map_err(|_| Error::from(highwater_queue::Refusal::SessionLost))?;
    Ok(SessionLock {
        session,
        number,
        until_ms: 0,
    })
}

/// How long `wait` may be, for requests that wait for something else.
pub fn waiting(app: &App, query: Option<&str>) -> Result<Duration, Error> {
    wait(query, app.options.wait_max)
}
