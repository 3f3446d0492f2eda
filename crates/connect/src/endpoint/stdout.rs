//! Rows on standard output as they come: at least once, because nobody can ask a terminal what it has shown.

use std::sync::{Arc, Mutex, PoisonError};

use highwater_query::plan::Name;

use super::mark::{self, Kind};
use super::{Endpoint, EndpointError, Rows, Underway};
use crate::json::JsonWriter;
use crate::sink::{Sink, SinkError, StdoutSink};

pub(super) struct StdoutEndpoint {
    writer: JsonWriter,
    /// Written to where it may block.
    sink: Arc<Mutex<dyn Sink>>,
    next: u64,
}

impl StdoutEndpoint {
    pub fn new(names: Vec<Name>) -> StdoutEndpoint {
        StdoutEndpoint::over(names, StdoutSink::new())
    }

    fn over(names: Vec<Name>, sink: impl Sink + 'static) -> StdoutEndpoint {
        StdoutEndpoint {
            writer: JsonWriter::new(names),
            sink: Arc::new(Mutex::new(sink)),
            next: 0,
        }
    }

    async fn show(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        let mut lines = Vec::new();
        self.writer
            .write_rows(&rows.chunk, rows.from(self.next), &mut lines);
        let sink = Arc::clone(&self.sink);
        let written = tokio::task::spawn_blocking(move || {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.write(&lines).and_then(|()| sink.flush())
        });
        match written.await {
            Ok(Ok(())) => {
                self.next = self.next.max(rows.end());
                Ok(())
            }
            Ok(Err(closed @ SinkError::Closed)) => Err(EndpointError::unfit(closed)),
            Ok(Err(error)) => Err(EndpointError::unavailable(error)),
            Err(stopped) => Err(EndpointError::unavailable(stopped)),
        }
    }
}

impl Endpoint for StdoutEndpoint {
    fn resume<'a>(&'a mut self, mark: Option<&'a [u8]>) -> Underway<'a, Result<(), EndpointError>> {
        let next = mark::to_number(Kind::Stdout, mark);
        Box::pin(std::future::ready(next.map(|next| self.next = next)))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> Underway<'a, Result<(), EndpointError>> {
        Box::pin(self.show(rows))
    }

    fn settle(&mut self) -> Underway<'_, Result<Vec<u8>, EndpointError>> {
        let mark = mark::of_number(Kind::Stdout, self.next);
        Box::pin(std::future::ready(Ok(mark)))
    }
}
