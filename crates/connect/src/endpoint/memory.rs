//! An endpoint in memory, for tests: it takes rows as the best of the others do, shows what it has, and fails when told
//! to.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_query::plan::Name;

use super::mark::{self, Kind};
use super::{Endpoint, EndpointError, Rows, Underway};
use crate::json::JsonWriter;

/// What stays when endpoints come and go. Clones are the same memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    next: u64,
    passed_over: u64,
    failures: VecDeque<EndpointError>,
}

impl Memory {
    /// Every row so far as a line of JSON.
    pub fn lines(&self) -> String {
        String::from_utf8_lossy(&self.state().lines).into_owned()
    }

    /// The number of the next row.
    pub fn next(&self) -> u64 {
        self.state().next
    }

    /// How many rows came again.
    pub fn passed_over(&self) -> u64 {
        self.state().passed_over
    }

    /// What the next write or settle will end with, after those that were ordered before.
    pub fn fail(&self, error: EndpointError) {
        self.state().failures.push_back(error);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fails(&mut self) -> Result<(), EndpointError> {
        self.failures.pop_front().map_or(Ok(()), Err)
    }
}

#[derive(Debug)]
pub struct MemoryEndpoint {
    memory: Memory,
    writer: JsonWriter,
}

impl MemoryEndpoint {
    pub fn new(memory: &Memory, names: Vec<Name>) -> MemoryEndpoint {
        MemoryEndpoint {
            memory: memory.clone(),
            writer: JsonWriter::new(names),
        }
    }

    fn take(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        let mut state = self.memory.state();
        state.fails()?;
        let new = rows.from(state.next);
        state.passed_over += new.start as u64;
        self.writer.write_rows(&rows.chunk, new, &mut state.lines);
        state.next = state.next.max(rows.end());
        Ok(())
    }
}

impl Endpoint for MemoryEndpoint {
    fn resume<'a>(&'a mut self, mark: Option<&'a [u8]>) -> Underway<'a, Result<(), EndpointError>> {
        let next = mark::to_number(Kind::Memory, mark);
        Box::pin(ready(next.and_then(|next| {
            let have = self.memory.next();
            match next <= have {
                true => Ok(()),
                false => Err(EndpointError::unfit(format!(
                    "it has rows up to {have}, and the checkpoint goes up to {next}"
                ))),
            }
        })))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> Underway<'a, Result<(), EndpointError>> {
        Box::pin(ready(self.take(rows)))
    }

    fn settle(&mut self) -> Underway<'_, Result<Vec<u8>, EndpointError>> {
        let mut state = self.memory.state();
        let settled = state.fails();
        Box::pin(ready(
            settled.map(|()| mark::of_number(Kind::Memory, state.next)),
        ))
    }
}
