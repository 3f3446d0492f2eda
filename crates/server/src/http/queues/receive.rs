//! Messages received and peeked at.

use highwater_env::MemoryShare;
use highwater_queue::{
    DeferredRequest, ReceiveLimit, ReceiveMode, ReceiveRequest, SessionLock,
    SettleAndReceiveResult, SettleBatch, SubQueue,
};
use hyper::StatusCode;
use serde::Deserialize;

use super::send::Sequences;
use super::settle::{Outcomes, tokens};
use super::{json, queue};
use crate::http::app::App;
use crate::http::dispatch::ApiRequest;
use crate::http::error::{Code, Error};
use crate::http::read::count;
use crate::http::reply::{self, Payload, Reply};
use crate::text::parameter;

const MESSAGES_MAX: u64 = 10_000;
const DEFERRED_MAX: usize = 256;
const PEEK_DEFAULT: u64 = 100;

/// Tokens that a receiver settles in the same request.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settlements {
    complete: Vec<String>,
    abandon: Vec<String>,
}

impl Settlements {
    async fn read(request: &mut ApiRequest<'_>) -> Result<Settlements, Error> {
        match request.has_body() {
            false => Ok(Settlements::default()),
            true => request.read_json("{\"complete\":[\"1-9c41d07f\"]}").await,
        }
    }
}

pub(in crate::http) async fn receive(
    mut request: ApiRequest<'_>,
    sub_queue: SubQueue,
) -> Result<Reply, Error> {
    let (app, query) = (request.app, request.query());
    let queue = queue(&request)?;
    let receive = ReceiveRequest {
        sub_queue,
        limit: ReceiveLimit {
            count: count(query, "max", 1)?.min(MESSAGES_MAX) as usize,
            bytes: app.options.read_bytes_max,
        },
        mode: mode(query)?,
        wait: request.wait()?,
        session: session(query)?,
        key: None,
        memory: Some(app.budget.clone()),
    };
    let given = Settlements::read(&mut request).await?;
    let done = SettleBatch {
        complete: tokens(&given.complete),
        abandon: tokens(&given.abandon),
    };
    // A stop of the node ends the wait and not the request, because its settlements must be applied.
    let mut exchange = std::pin::pin!(queue.exchange(done, receive));
    let exchange = tokio::select! {
        biased;
        exchange = &mut exchange => exchange?,
        () = app.stopped() => {
            queue.end_waits().await;
            exchange.await?
        }
    };
    exchanged(app, &given, exchange)
}

fn exchanged(
    app: &App,
    given: &Settlements,
    exchange: SettleAndReceiveResult,
) -> Result<Reply, Error> {
    let SettleAndReceiveResult {
        settled,
        received,
        memory,
    } = exchange;
    if settled.is_empty() {
        return answer(app, json::deliveries(&received?, None), memory);
    }
    let given = given.complete.iter().chain(&given.abandon);
    let outcomes = Outcomes::of(&settled, given);
    match received {
        Ok(got) => answer(app, json::deliveries(&got, Some(&outcomes)), memory),
        Err(refusal) => {
            let mut error = Error::from(refusal);
            error.details = Some(Box::new(serde_json::json!(outcomes)));
            Err(error)
        }
    }
}

pub(in crate::http) async fn deferred(
    mut request: ApiRequest<'_>,
    sub_queue: SubQueue,
) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let (mode, session) = (mode(request.query())?, session(request.query())?);
    let seqs = Sequences::read(&mut request).await?;
    if seqs.len() > DEFERRED_MAX {
        let message = format!("{} messages are too many for one request", seqs.len());
        let hint = format!("request at most {DEFERRED_MAX} at a time");
        return Err(Error::new(Code::TooLarge, message, hint));
    }
    let deferred = DeferredRequest {
        sub_queue,
        seqs,
        mode,
        session,
        memory: request.app.budget.clone(),
    };
    let (got, memory) = queue.receive_deferred(deferred).await?;
    answer(request.app, json::deliveries(&got, None), memory)
}

pub(in crate::http) async fn peek(
    request: ApiRequest<'_>,
    sub_queue: SubQueue,
) -> Result<Reply, Error> {
    let (queue, query) = (queue(&request)?, request.query());
    let from = count(query, "from", 1)?;
    let limit = ReceiveLimit {
        count: count(query, "max", PEEK_DEFAULT)?.min(MESSAGES_MAX) as usize,
        bytes: request.app.options.read_bytes_max,
    };
    let mut share = request.app.budget.try_take(limit.bytes)?;
    let body = json::peeked(&queue.peek(sub_queue, from, limit).await?);
    share.resize(body.len())?;
    let payload = Payload::whole(body).holding(share);
    Ok(reply::typed(StatusCode::OK, reply::JSON, payload))
}

/// The memory share of the messages passes to the answer. JSON is larger than they are, by base64 and its names; a
/// delivered message must reach its receiver, so the difference is counted and not refused.
fn answer(app: &App, body: Vec<u8>, mut share: MemoryShare) -> Result<Reply, Error> {
    let missing = body.len().saturating_sub(share.bytes());
    share.add(app.budget.take_unchecked(missing));
    share.shrink_to(body.len());
    let payload = Payload::whole(body).holding(share);
    Ok(reply::typed(StatusCode::OK, reply::JSON, payload))
}

fn mode(query: Option<&str>) -> Result<ReceiveMode, Error> {
    match parameter(query, "mode").as_deref() {
        None | Some("lock") => Ok(ReceiveMode::PeekLock),
        Some("delete") => Ok(ReceiveMode::ReceiveAndDelete),
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

pub(super) fn session_lock(session: String, token: &str) -> Result<SessionLock, Error> {
    let number = u64::from_str_radix(token, 16);
    let number = number.map_err(|_| Error::from(highwater_queue::Refusal::SessionLost))?;
    Ok(SessionLock {
        session,
        number,
        until_ms: 0,
    })
}
