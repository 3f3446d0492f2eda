//! Settling received messages in every way that a receiver may want, with changes of their properties.

use std::fmt;
use std::sync::Arc;

use super::error::Error;
use super::exchange::SettleResults;
use super::handle::Queue;
use crate::machine::{LockToken, Machine, Refusal, TransactionStep};
use crate::message::Properties;

/// Computes the new properties of a message from the current ones.
#[derive(Clone)]
pub struct PropertyEdit(Arc<dyn Fn(&Properties) -> Properties + Send + Sync>);

impl PropertyEdit {
    pub fn new(edit: impl Fn(&Properties) -> Properties + Send + Sync + 'static) -> PropertyEdit {
        PropertyEdit(Arc::new(edit))
    }
}

impl fmt::Debug for PropertyEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PropertyEdit")
    }
}

/// How a received message is settled.
#[derive(Clone, Debug)]
pub enum Disposition {
    Complete,
    Abandon(Option<PropertyEdit>),
    /// Released uncounted: the delivery does not count.
    Release,
    Defer(Option<PropertyEdit>),
    DeadLetter {
        reason: String,
        description: String,
        edit: Option<PropertyEdit>,
    },
}

impl Queue {
    /// Settles messages in the same way. One result per token.
    pub async fn settle(
        &self,
        tokens: Vec<LockToken>,
        how: Disposition,
    ) -> Result<SettleResults, Error> {
        self.each(tokens, move |machine, token| how.settle(machine, token))
            .await
    }
}

impl Disposition {
    /// The step of a transaction that settles a message so.
    pub(super) fn step(
        &self,
        machine: &Machine,
        token: LockToken,
    ) -> Result<TransactionStep, Refusal> {
        Ok(match self {
            Disposition::Complete => TransactionStep::Complete { token },
            Disposition::Release => TransactionStep::Abandon {
                token,
                properties: None,
            },
            Disposition::Abandon(edit) => TransactionStep::Abandon {
                token,
                properties: edited(machine, token, edit)?,
            },
            Disposition::Defer(edit) => TransactionStep::Defer {
                token,
                properties: edited(machine, token, edit)?,
            },
            Disposition::DeadLetter {
                reason,
                description,
                edit,
            } => TransactionStep::DeadLetter {
                token,
                properties: edited(machine, token, edit)?,
                reason: reason.clone(),
                description: description.clone(),
            },
        })
    }

    fn settle(&self, machine: &mut Machine, token: LockToken) -> Result<(), Refusal> {
        match self {
            Disposition::Complete => machine.complete(token),
            Disposition::Abandon(edit) => {
                let properties = edited(machine, token, edit)?;
                machine.abandon(token, properties)
            }
            Disposition::Release => machine.give_back(token),
            Disposition::Defer(edit) => {
                let properties = edited(machine, token, edit)?;
                machine.defer(token, properties)
            }
            Disposition::DeadLetter {
                reason,
                description,
                edit,
            } => {
                let properties = edited(machine, token, edit)?;
                machine.dead_letter(token, reason.clone(), description.clone(), properties)
            }
        }
    }
}

/// The new properties of a message. They may not make it larger than the queue allows.
fn edited(
    machine: &Machine,
    token: LockToken,
    edit: &Option<PropertyEdit>,
) -> Result<Option<Properties>, Refusal> {
    let Some(PropertyEdit(edit)) = edit else {
        return Ok(None);
    };
    let properties = edit(machine.properties(token)?);
    let texts = |(name, value): &(String, String)| name.len() + value.len();
    let bytes: usize = properties.iter().map(texts).sum();
    let max = machine.settings().message_bytes_max;
    match bytes <= max as usize {
        true => Ok(Some(properties)),
        false => Err(Refusal::TooLarge { bytes, max }),
    }
}
