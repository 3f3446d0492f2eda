//! Sessions: messages that belong together, received in order by one receiver at a time.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;

use super::timers::Timer;
use super::{Event, Machine, Refusal, millis, toggle};

/// There as long as it has a message, a lock or a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    pub ready: BTreeSet<(i64, u64)>,
    /// Messages locked through the session lock.
    pub held: BTreeSet<u64>,
    /// Lock number and expiry.
    pub lock: Option<(u64, i64)>,
    pub state: Option<Bytes>,
}

/// The right to receive from a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLock {
    pub session: String,
    pub number: u64,
    pub until_ms: i64,
}

impl fmt::Display for SessionLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.number)
    }
}

impl Machine {
    /// Locks the named session, or the free one whose first message is the oldest. `None` if no session is
    /// available.
    pub(crate) fn accept(
        &mut self,
        session: Option<String>,
    ) -> Result<Option<SessionLock>, Refusal> {
        if !self.settings.sessions {
            return Err(Refusal::SessionsDisabled);
        }
        let session = match session {
            Some(name) if name.len() > crate::message::ID_BYTES_MAX => {
                return Err(Refusal::IdTooLong(name.len()));
            }
            Some(name) => match self.sessions.get(&name) {
                Some(taken) if taken.lock.is_some() => return Err(Refusal::SessionLocked(name)),
                _ => name,
            },
            None => match self.free.first_key_value() {
                Some((_, name)) => name.clone(),
                None => return Ok(None),
            },
        };
        let number = self.next_lock;
        self.lock_session(session, number).map(Some)
    }

    pub(crate) fn renew_session(&mut self, lock: &SessionLock) -> Result<SessionLock, Refusal> {
        self.locked_session(lock)?;
        self.lock_session(lock.session.clone(), lock.number)
    }

    /// Releases a session. Its unsettled messages are released too.
    pub(crate) fn release_session(&mut self, lock: &SessionLock) -> Result<(), Refusal> {
        self.locked_session(lock)?;
        let session = lock.session.clone();
        self.commit(Event::SessionReleased { session });
        Ok(())
    }

    /// Releases a session whose receiver ends gracefully: the deliveries of its unsettled messages do not count.
    pub(crate) fn return_session(&mut self, lock: &SessionLock) -> Result<(), Refusal> {
        self.locked_session(lock)?;
        let session = lock.session.clone();
        self.commit(Event::SessionReturned { session });
        Ok(())
    }

    pub(crate) fn set_session_state(
        &mut self,
        lock: &SessionLock,
        state: Option<Bytes>,
    ) -> Result<(), Refusal> {
        self.locked_session(lock)?;
        let (bytes, max) = (state.as_ref().map_or(0, Bytes::len), 256 << 10);
        if bytes > max as usize {
            return Err(Refusal::TooLarge { bytes, max });
        }
        let session = lock.session.clone();
        self.commit(Event::SessionState { session, state });
        Ok(())
    }

    pub(crate) fn get_session_state(&self, lock: &SessionLock) -> Result<Option<Bytes>, Refusal> {
        Ok(self.locked_session(lock)?.state.clone())
    }

    /// Whether `accept(None)` would return a session.
    pub(crate) fn has_free_session(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether a session has ready messages.
    pub(crate) fn has_ready_in(&self, session: &str) -> bool {
        (self.sessions.get(session)).is_some_and(|session| !session.ready.is_empty())
    }

    pub(crate) fn holds_session(&self, lock: &SessionLock) -> bool {
        self.locked_session(lock).is_ok()
    }

    /// Whether a session is unlocked. An unknown session is.
    pub(crate) fn is_free(&self, session: &str) -> bool {
        (self.sessions.get(session)).is_none_or(|session| session.lock.is_none())
    }

    pub(super) fn locked_session(&self, lock: &SessionLock) -> Result<&Session, Refusal> {
        if !self.settings.sessions {
            return Err(Refusal::SessionsDisabled);
        }
        let session = self.sessions.get(&lock.session);
        let session = session.filter(|session| {
            session
                .lock
                .is_some_and(|(number, _)| number == lock.number)
        });
        session.ok_or(Refusal::SessionLost)
    }

    /// The number of a session's lock.
    pub(super) fn session_number(&self, session: &str) -> Option<u64> {
        self.sessions.get(session)?.lock.map(|(number, _)| number)
    }

    pub(super) fn session_end(&self, session: &str) -> Option<i64> {
        self.sessions.get(session)?.lock.map(|(_, until)| until)
    }

    fn lock_session(&mut self, session: String, number: u64) -> Result<SessionLock, Refusal> {
        let until_ms = self.now_ms.saturating_add(millis(self.settings.lock));
        let lock = SessionLock {
            session: session.clone(),
            number,
            until_ms,
        };
        self.commit(Event::SessionLocked {
            session,
            number,
            until_ms,
        });
        Ok(lock)
    }

    pub(super) fn session_locked(&mut self, name: &str, number: u64, until_ms: i64) {
        self.unlock(name);
        self.next_lock = self.next_lock.max(number + 1);
        self.session_locks.insert(number, name.to_owned());
        self.due
            .insert((until_ms, Timer::SessionLockExpiry(number)));
        self.in_session(name, |session| session.lock = Some((number, until_ms)));
    }

    pub(super) fn restore_session(
        &mut self,
        name: &str,
        lock: Option<(u64, i64)>,
        state: Option<Bytes>,
    ) {
        self.session_state(name, state);
        if let Some((number, until_ms)) = lock {
            self.session_locked(name, number, until_ms);
        }
    }

    pub(super) fn session_freed(&mut self, name: &str, at_ms: i64) {
        self.unlock(name);
        let held = self.sessions.get(name).map(|session| session.held.clone());
        for seq in held.into_iter().flatten() {
            self.release(seq, at_ms, None);
        }
    }

    pub(super) fn session_returned(&mut self, name: &str, at_ms: i64) {
        self.unlock(name);
        let held = self.sessions.get(name).map(|session| session.held.clone());
        for seq in held.into_iter().flatten() {
            self.take_back(seq, at_ms);
        }
    }

    pub(super) fn session_expired(&mut self, number: u64, at_ms: i64) {
        if let Some(name) = self.session_locks.get(&number).cloned() {
            self.totals.locks_lost += 1;
            self.session_freed(&name, at_ms);
        }
    }

    pub(super) fn session_state(&mut self, name: &str, state: Option<Bytes>) {
        self.in_session(name, |session| session.state = state);
    }

    fn unlock(&mut self, name: &str) {
        let lock = self.sessions.get(name).and_then(|session| session.lock);
        let Some((number, until_ms)) = lock else {
            return;
        };
        self.session_locks.remove(&number);
        toggle(
            &mut self.due,
            (until_ms, Timer::SessionLockExpiry(number)),
            false,
        );
        self.in_session(name, |session| session.lock = None);
    }

    /// Changes a session and updates the index of free sessions. Creates the session if it is new and removes it
    /// when it is empty.
    pub(super) fn in_session(&mut self, name: &str, how: impl FnOnce(&mut Session)) {
        if !self.sessions.contains_key(name) {
            self.sessions.insert(name.to_owned(), Session::default());
        }
        let Some(session) = self.sessions.get_mut(name) else {
            return;
        };
        let before = session.free_since();
        how(session);
        let (after, empty) = (session.free_since(), *session == Session::default());
        if before != after {
            before.and_then(|position| self.free.remove(&position));
            after.and_then(|position| self.free.insert(position, name.to_owned()));
        }
        if empty {
            self.sessions.remove(name);
        }
    }
}

impl Session {
    fn free_since(&self) -> Option<(i64, u64)> {
        match self.lock {
            None => self.ready.first().copied(),
            Some(_) => None,
        }
    }
}
