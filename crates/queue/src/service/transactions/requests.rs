//! The requests of transactions to their queues.

use highwater_log::Offset;

use super::TransactionOperation;
use super::decisions::number;
use crate::machine::{Machine, TransactionStep};
use crate::service::error::Error;
use crate::service::handle::Queue;

impl Queue {
    /// The steps of operations. Changes of properties are computed now.
    pub(super) async fn transaction_steps(
        &self,
        operations: Vec<TransactionOperation>,
    ) -> Result<Vec<TransactionStep>, Error> {
        let steps = move |machine: &mut Machine| {
            let mut steps = Vec::new();
            for operation in operations {
                match operation {
                    TransactionOperation::Send(messages) => {
                        steps.extend(messages.into_iter().map(TransactionStep::Send));
                    }
                    TransactionOperation::Settle { token, how } => {
                        steps.push(how.step(machine, token)?);
                    }
                }
            }
            Ok(steps)
        };
        self.call(steps).await
    }

    /// Applies the part of a decision, unless that was done before.
    pub(super) async fn apply_decision(
        &self,
        offset: Offset,
        floor: u64,
        steps: Vec<TransactionStep>,
    ) -> Result<(), Error> {
        let apply = move |machine: &mut Machine| {
            machine.apply_decision(number(offset), floor, steps);
            Ok(())
        };
        self.call(apply).await
    }
}
