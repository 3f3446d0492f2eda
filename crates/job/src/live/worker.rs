//! A thread that processes the fetches of some of the partitions.

use std::sync::Arc;

use highwater_env::Clock;
use highwater_log::FetchData;
use tokio::sync::mpsc;

use super::combiner_thread::CombinerMessage;
use super::hub_stream::HubStream;
use crate::stream::StreamOutput;

pub(super) enum WorkItem {
    Fetched {
        stream: usize,
        fetched: FetchData,
    },
    /// There are no more events at the moment.
    Drained {
        stream: usize,
    },
    /// There will be no more events. If `time_ends`, the watermark advances to infinity.
    End {
        stream: usize,
        time_ends: bool,
    },
    /// Copy the state of all streams of the worker.
    Copy,
}

pub(super) struct Worker {
    pub number: usize,
    pub streams: Vec<HubStream>,
    pub timer: Arc<dyn Clock>,
    pub out: mpsc::UnboundedSender<CombinerMessage>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "a worker thread ended unexpectedly".to_owned();
            // The combiner may be gone.
            let _ = self.out.send(CombinerMessage::Failed(reason));
        }
    }
}

impl Worker {
    /// Runs until its channel or that of the combiner is closed.
    pub(super) fn run(mut self, mut inbox: mpsc::UnboundedReceiver<WorkItem>) {
        while let Some(work) = inbox.blocking_recv() {
            let done = self.process(work).into_iter();
            if done
                .map(|message| self.out.send(message))
                .any(|sent| sent.is_err())
            {
                return;
            }
        }
    }

    fn process(&mut self, work: WorkItem) -> Vec<CombinerMessage> {
        let worker = self.number;
        match work {
            WorkItem::Fetched { stream, fetched } => {
                let stream = self.stream(stream);
                match stream.take(&fetched) {
                    Ok(output) => {
                        let mut messages = vec![message(worker, stream, output)];
                        let measured = stream.measure(&fetched);
                        messages.extend(measured.err().map(CombinerMessage::Failed));
                        messages
                    }
                    Err(broken) => vec![CombinerMessage::Failed(format!(
                        "a fetch is not a sequence of batches: {broken}"
                    ))],
                }
            }
            WorkItem::Drained { stream } => vec![CombinerMessage::Drained { worker, stream }],
            WorkItem::End { stream, time_ends } => {
                let mut messages = Vec::new();
                if time_ends {
                    let stream = self.stream(stream);
                    let output = stream.end();
                    messages.push(message(worker, stream, output));
                }
                messages.push(CombinerMessage::Ended { worker, stream });
                messages
            }
            WorkItem::Copy => {
                let began = self.timer.elapsed();
                let copies = self.streams.iter();
                let copies = copies
                    .map(|stream| (stream.number(), stream.snapshot()))
                    .collect();
                vec![CombinerMessage::Copied {
                    worker,
                    copies,
                    took: self.timer.elapsed() - began,
                }]
            }
        }
    }

    fn stream(&mut self, number: usize) -> &mut HubStream {
        let streams = &mut self.streams;
        let place = streams.iter().position(|stream| stream.number() == number);
        &mut streams[place.expect("work is sent to the worker that has the stream")]
    }
}

fn message(worker: usize, stream: &HubStream, output: StreamOutput) -> CombinerMessage {
    CombinerMessage::Output {
        worker,
        output: Box::new(output),
        status: Box::new(stream.status()),
    }
}
