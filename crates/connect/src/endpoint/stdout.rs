//! Rows on standard output: at least once, because a terminal cannot report its last row.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_query::plan::Name;

use super::state::{self, EndpointKind};
use super::{
    Endpoint, EndpointError, EndpointFuture, OpenResult, OutputContext, OutputKind, OutputSettings,
    Rows, SinkTarget,
};
use crate::json::JsonWriter;
use crate::sink::{Sink, SinkError, StdoutSink};
use crate::writer::OutputFormat;

/// Standard output. A live job writes lines of JSON whatever the format.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdoutOutput {
    format: OutputFormat,
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "stdout",
    keys: &["path", "format", "delimiter", "header"],
    read: |reader, section| {
        let no_path = "an output of type \"stdout\" writes to no file";
        reader.useless(section, "path", no_path);
        let format = OutputFormat::read(reader, section, OutputFormat::JsonLines);
        if format == OutputFormat::Parquet {
            let files_only = "Parquet is written to files only; give the output a path";
            reader.useless(section, "format", files_only);
        }
        Some(Arc::new(StdoutOutput { format }))
    },
    missing_feature: None,
};

impl OutputSettings for StdoutOutput {
    fn open(&self, names: Vec<Name>, _: &OutputContext) -> OpenResult {
        Ok(Box::new(StdoutEndpoint::over(names, StdoutSink::new())))
    }

    fn sink_target(&self, _: &Path) -> Option<SinkTarget> {
        Some(SinkTarget {
            path: None,
            format: self.format,
        })
    }
}

struct StdoutEndpoint {
    writer: JsonWriter,
    /// Written to on a blocking thread.
    sink: Arc<Mutex<dyn Sink>>,
    next: u64,
}

impl StdoutEndpoint {
    fn over(names: Vec<Name>, sink: impl Sink + 'static) -> StdoutEndpoint {
        StdoutEndpoint {
            writer: JsonWriter::new(names),
            sink: Arc::new(Mutex::new(sink)),
            next: 0,
        }
    }

    async fn print(&mut self, rows: &Rows) -> Result<(), EndpointError> {
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
    fn resume<'a>(&'a mut self, state: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        let next = state::to_number(EndpointKind::Stdout, state);
        Box::pin(std::future::ready(next.map(|next| self.next = next)))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()> {
        Box::pin(self.print(rows))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        let state = state::of_number(EndpointKind::Stdout, self.next);
        Box::pin(std::future::ready(Ok(state)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Row, names, rows};
    use super::*;

    /// Accepts bytes until its reader goes away.
    struct Screen {
        shown: Arc<Mutex<Vec<u8>>>,
        lines_max: usize,
    }

    impl Sink for Screen {
        fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
            let mut shown = self.shown.lock().unwrap();
            shown.extend_from_slice(bytes);
            match shown.iter().filter(|byte| **byte == b'\n').count() > self.lines_max {
                true => Err(SinkError::Closed),
                false => Ok(()),
            }
        }

        fn commit(self: Box<Self>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn rows_are_shown_until_nobody_looks() {
        let shown: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (screen, lines_max) = (Arc::clone(&shown), 3);
        let screen = Screen {
            shown: screen,
            lines_max,
        };
        let mut endpoint = StdoutEndpoint::over(names(), screen);
        let row = |text: &str| Row {
            seconds: 0,
            device: None,
            text: text.into(),
        };
        let given = [row("a"), row("b"), row("c"), row("d")];
        endpoint.resume(None).await.unwrap();
        endpoint.write(&rows(0, &given[..2])).await.unwrap();
        endpoint.write(&rows(1, &given[1..3])).await.unwrap();
        let text = String::from_utf8(shown.lock().unwrap().clone()).unwrap();
        let texts: Vec<&str> = text.lines().map(|line| &line[23..24]).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        let state = endpoint.checkpoint().await.unwrap();
        let closed = endpoint.write(&rows(3, &given[3..])).await;
        assert!(matches!(closed, Err(EndpointError::Unfit { .. })));
        endpoint.resume(Some(&state)).await.unwrap();
        assert_eq!(endpoint.next, 3);
    }
}
