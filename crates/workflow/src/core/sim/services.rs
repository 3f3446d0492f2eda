//! Services that may or may not do the work, and may or may not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use highwater_env::random::Random;

use crate::call::{CallError, PreparedCall};
use crate::machine::Answer;

#[derive(Default)]
pub(crate) struct Services {
    held: BTreeSet<(Arc<str>, usize)>,
    /// Undos in the order of their first call.
    undone: BTreeMap<Arc<str>, Vec<usize>>,
    keys: BTreeMap<(Arc<str>, usize, bool), String>,
    /// Durable outcomes: these must not be called again.
    settled: BTreeSet<(Arc<str>, usize, bool)>,
}

/// How often calls fail, in percent.
#[derive(Clone, Copy)]
pub(crate) struct Mood {
    pub failure_percent: u64,
}

impl Services {
    /// A call reaches a service; the answer may be lost.
    pub(crate) fn ask(
        &mut self,
        id: &Arc<str>,
        step: usize,
        undo: bool,
        work: &PreparedCall,
        mood: Mood,
        random: &mut Random,
    ) -> Result<Answer, CallError> {
        self.note(id, step, undo, work);
        let body = Bytes::from(format!("{{\"n\":{}}}", random.below(100)));
        let done = Ok(Answer { status: 200, body });
        if random.below(100) >= mood.failure_percent {
            self.carry_out(id, step, undo);
            return done;
        }
        match random.below(6) {
            0 => Err(CallError::transient("cannot connect")),
            1 => {
                self.carry_out(id, step, undo);
                Err(CallError::transient("no answer").in_doubt())
            }
            2 => Err(CallError::transient("500").in_doubt()),
            3 => Err(CallError::permanent("400")),
            4 if !undo => Err(CallError::refused("409")),
            _ => Err(CallError::transient("429")),
        }
    }

    /// A late undo that another supervisor may have settled already.
    pub(crate) fn repeat(
        &mut self,
        id: &Arc<str>,
        step: usize,
        random: &mut Random,
    ) -> Result<Answer, CallError> {
        if random.below(2) == 0 {
            return Err(CallError::transient("no answer").in_doubt());
        }
        self.carry_out(id, step, true);
        let body = Bytes::new();
        Ok(Answer { status: 404, body })
    }

    fn note(&mut self, id: &Arc<str>, step: usize, undo: bool, work: &PreparedCall) {
        let place = (Arc::clone(id), step, undo);
        assert!(
            !self.settled.contains(&place),
            "{place:?} was settled and is asked for again"
        );
        let PreparedCall::Http { request, .. } = work else {
            panic!("there are no functions here");
        };
        let key = request.headers[0].1.to_str().unwrap().to_owned();
        let first = self.keys.entry(place).or_insert_with(|| key.clone());
        assert_eq!(*first, key, "the key has changed");
        if undo {
            let undone = self.undone.entry(Arc::clone(id)).or_default();
            if !undone.contains(&step) {
                undone.push(step);
            }
        }
    }

    pub(crate) fn carry_out(&mut self, id: &Arc<str>, step: usize, undo: bool) {
        let place = (Arc::clone(id), step);
        match undo {
            false => self.held.insert(place),
            true => self.held.remove(&place),
        };
    }

    pub(crate) fn settle(&mut self, id: &Arc<str>, step: usize, undo: bool) {
        self.settled.insert((Arc::clone(id), step, undo));
    }

    /// An operator retries the undos of an instance.
    pub(crate) fn unsettle(&mut self, id: &Arc<str>) {
        self.settled.retain(|(other, _, undo)| other != id || !undo);
    }

    pub(crate) fn is_held(&self, id: &str, step: usize) -> bool {
        self.held.contains(&(Arc::from(id), step))
    }

    /// Compensations ran from the last step to the first, and only for steps that were called or may have been called
    /// before a crash.
    pub(crate) fn check_order(&self, id: &Arc<str>, crashed: bool) {
        let undone = self.undone.get(id).map_or(&[][..], Vec::as_slice);
        assert!(undone.is_sorted_by(|a, b| a > b), "{id}: {undone:?}");
        for step in undone {
            let asked = self.keys.contains_key(&(Arc::clone(id), *step, false));
            assert!(
                asked || crashed,
                "{id}: step {step} was undone and never done"
            );
        }
    }
}
