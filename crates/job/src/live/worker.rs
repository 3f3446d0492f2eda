//! A thread that processes the fetches of some of the partitions.

use std::sync::Arc;

use highwater_env::Clock;
use highwater_log::FetchData;
use highwater_time::Instant;
use tokio::sync::mpsc;

use super::combiner_thread::CombinerMessage;
use super::hub_stream::fetched_bytes;
use super::partition_stream::PartitionStream;
use super::time_journal::PassedTime;
use crate::stream::StreamOutput;

pub(super) enum WorkItem {
    Fetched {
        stream: usize,
        fetched: FetchData,
        /// Times of a journal.
        passed: Vec<PassedTime>,
    },
    /// There are no more events at the moment.
    Drained { stream: usize },
    /// There will be no more events. If `time_ends`, the watermark advances to infinity.
    End { stream: usize, time_ends: bool },
    /// Copy the state of all streams of the worker.
    Copy,
    /// Streams that stop at barriers continue to this one.
    RaiseBarrier(Instant),
    /// Streams that stop at barriers preview their end.
    Preview,
}

pub(super) struct Worker {
    pub number: usize,
    pub streams: Vec<PartitionStream>,
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
            WorkItem::Fetched {
                stream,
                fetched,
                passed,
            } => {
                let stream = self.stream(stream);
                let output = stream.take(&fetched, &passed);
                let output = WorkOutput::of_fetch(output, fetched_bytes(&fetched));
                let mut messages = vec![message(worker, stream, output)];
                let measured = stream.measure(&fetched);
                messages.extend(measured.err().map(CombinerMessage::Failed));
                messages
            }
            WorkItem::Drained { stream } => vec![CombinerMessage::Drained { worker, stream }],
            WorkItem::End { stream, time_ends } => {
                let mut messages = Vec::new();
                if time_ends {
                    let stream = self.stream(stream);
                    let output = stream.end();
                    messages.push(message(worker, stream, WorkOutput::of_fetch(output, 0)));
                }
                messages.push(CombinerMessage::Ended { worker, stream });
                messages
            }
            WorkItem::RaiseBarrier(barrier) => {
                let streams = self.streams.iter_mut().filter(|stream| stream.stops());
                let raised = streams.map(|stream| {
                    let output = WorkOutput {
                        output: stream.raise_barrier(barrier),
                        input: 0,
                        answers_barrier: true,
                    };
                    message(worker, stream, output)
                });
                raised.collect()
            }
            WorkItem::Preview => {
                let streams = self.streams.iter().filter(|stream| stream.stops());
                let previews = streams.map(|stream| match stream.preview_end() {
                    Ok(preview) => CombinerMessage::Previewed { worker, preview },
                    Err(reason) => CombinerMessage::Failed(reason),
                });
                previews.collect()
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

    fn stream(&mut self, number: usize) -> &mut PartitionStream {
        let streams = &mut self.streams;
        let place = streams.iter().position(|stream| stream.number() == number);
        &mut streams[place.expect("work is sent to the worker that has the stream")]
    }
}

/// The output of a stream for some work.
struct WorkOutput {
    output: Result<StreamOutput, String>,
    /// The size of the fetch.
    input: u64,
    answers_barrier: bool,
}

impl WorkOutput {
    fn of_fetch(output: Result<StreamOutput, String>, input: u64) -> WorkOutput {
        WorkOutput {
            output,
            input,
            answers_barrier: false,
        }
    }
}

fn message(worker: usize, stream: &PartitionStream, made: WorkOutput) -> CombinerMessage {
    let WorkOutput {
        output,
        input,
        answers_barrier,
    } = made;
    let bounded = output.and_then(|output| Ok((stream.put_in_flight(&output, input)?, output)));
    match bounded {
        Ok((in_flight, output)) => CombinerMessage::Output {
            worker,
            output: Box::new(output),
            status: Box::new(stream.status()),
            in_flight,
            answers_barrier,
        },
        Err(reason) => CombinerMessage::Failed(reason),
    }
}
