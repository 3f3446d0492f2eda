//! Sessions of browsers: the key, the expiry, and the token against requests of other sites.
//!
//! The cookie is SameSite=Strict and HttpOnly. A request with it that changes something must also carry the session's
//! token in a header, which only a page of this node can read. A session holds the key itself, so that it ends when
//! the key is revoked or replaced.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use highwater_access::Key;
use hyper::HeaderMap;
use hyper::header::COOKIE;
use sha2::{Digest, Sha256};

use crate::http::app::App;
use crate::tls::random_bytes;

const COOKIE_NAME: &str = "highwater-session";

/// The header with the session's token.
pub(in crate::http) const CSRF_HEADER: &str = "x-highwater-csrf";

const LIFETIME_SECONDS: i64 = 12 * 3600;

/// With more, the oldest end.
const SESSIONS_MAX: usize = 1000;

/// The SHA-256 of the cookie's value: the memory of the node has no cookie in it.
type Id = [u8; 32];

#[derive(Default)]
pub(in crate::http) struct Sessions {
    open: Mutex<HashMap<Id, Session>>,
}

#[derive(Clone, Debug)]
pub(in crate::http) struct Session {
    id: Id,
    pub(in crate::http) key: Arc<Key>,
    pub(in crate::http) csrf: Arc<str>,
    expires_ms: i64,
}

impl Session {
    /// Whether the request carries the session's token.
    pub(in crate::http) fn has_token(&self, headers: &HeaderMap) -> bool {
        let token = headers.get(CSRF_HEADER).map(|token| token.as_bytes());
        // Digests, so that the time of the comparison reveals nothing of the token.
        token.is_some_and(|token| Sha256::digest(token) == Sha256::digest(self.csrf.as_bytes()))
    }
}

impl Sessions {
    /// Opens a session, and returns the cookie for the browser.
    pub(in crate::http) fn open(&self, key: Arc<Key>, app: &App) -> io::Result<String> {
        let token = URL_SAFE_NO_PAD.encode(random_bytes::<32>()?);
        let now_ms = app.clock.unix_millis();
        let session = Session {
            id: Sha256::digest(&token).into(),
            key,
            csrf: URL_SAFE_NO_PAD.encode(random_bytes::<32>()?).into(),
            expires_ms: now_ms + LIFETIME_SECONDS * 1000,
        };
        let mut open = self.lock();
        open.retain(|_, session| session.expires_ms > now_ms);
        if open.len() >= SESSIONS_MAX
            && let Some(oldest) = open.values().min_by_key(|session| session.expires_ms)
        {
            let oldest = oldest.id;
            open.remove(&oldest);
        }
        open.insert(session.id, session);
        Ok(cookie(&token, LIFETIME_SECONDS, app))
    }

    /// The session whose cookie a request carries, if it is open.
    pub(in crate::http) fn of_request(&self, headers: &HeaderMap, app: &App) -> Option<Session> {
        let id: Id = Sha256::digest(cookie_value(headers)?).into();
        let session = self.lock().get(&id).cloned()?;
        self.is_open(&session, app).then_some(session)
    }

    /// Whether a session has neither ended nor lost its key.
    pub(in crate::http) fn is_open(&self, session: &Session, app: &App) -> bool {
        let now_ms = app.clock.unix_millis();
        let key = app.keys.get(&session.key.name, now_ms);
        session.expires_ms > now_ms
            && key.is_some_and(|key| Arc::ptr_eq(&key, &session.key))
            && self.lock().contains_key(&session.id)
    }

    /// Ends the session, and returns the cookie that removes it from the browser.
    pub(in crate::http) fn close(&self, session: &Session, app: &App) -> String {
        self.lock().remove(&session.id);
        cookie("", 0, app)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cookie(value: &str, seconds: i64, app: &App) -> String {
    let secure = if app.options.tls.is_some() {
        "; Secure"
    } else {
        ""
    };
    format!("{COOKIE_NAME}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

fn cookie_value(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter();
    let pairs = cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let mut ours = pairs.filter(|(name, _)| *name == COOKIE_NAME);
    ours.next().map(|(_, value)| value)
}
