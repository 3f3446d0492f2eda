//! The queue between the combiner and the task of an output. A full queue holds up the combiner, and with it the job.

use highwater_connect::EndpointError;
use tokio::sync::mpsc;

use super::status::StatusHandle;
use crate::output_merge::{OutputMessage, OutputPort};

pub(super) struct OutputQueue {
    /// Its index among the outputs of the job.
    pub index: usize,
    pub to: mpsc::Sender<OutputMessage>,
    pub status: StatusHandle,
}

impl OutputPort for OutputQueue {
    fn send(&mut self, message: OutputMessage) -> Result<(), EndpointError> {
        if let OutputMessage::Rows(rows) = &message {
            let (count, next) = (rows.chunk.rows() as u64, rows.end());
            self.status.update_output(self.index, |status| {
                status.rows += count;
                status.waiting += count;
                status.next = next;
            });
        }
        let sent = self.to.blocking_send(message);
        sent.map_err(|_| EndpointError::Closed)
    }
}
