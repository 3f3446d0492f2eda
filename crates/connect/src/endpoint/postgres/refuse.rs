//! Which rows the server does not take.
//!
//! It says that something is wrong, and not always where. So rows are tried in halves, each half behind a savepoint and
//! on top of the rows before it that are right, because a row may be wrong only beside another. Nothing of it stays.

use super::connection::{Session, copy};
use super::copy::Lines;
use super::error::Failure;

/// No more are looked for at a time.
const REFUSED_MAX: usize = 100;

impl Session {
    /// `reason` is what the server said to all of them.
    pub async fn find_refused(&mut self, lines: &Lines, reason: String) -> Failure {
        match self.try_halves(lines).await {
            Ok((rows, reason)) if !rows.is_empty() => Failure::Refused { rows, reason },
            // All of them are right by now: what was wrong had to do with the rows of somebody else.
            Ok(_) => Failure::Unavailable(reason),
            Err(failure) => failure,
        }
    }

    async fn try_halves(&mut self, lines: &Lines) -> Result<(Vec<u64>, String), Failure> {
        let (transaction, table) = self.attempt().await?;
        let mut refused = Vec::new();
        let mut first_reason = None;
        let whole = 0..lines.len();
        let mut left = vec![whole];
        while let Some(range) = left.pop()
            && refused.len() < REFUSED_MAX
        {
            transaction.batch_execute("SAVEPOINT half").await?;
            match copy(&transaction, table, lines.some(range.clone())).await {
                Ok(()) => transaction.batch_execute("RELEASE SAVEPOINT half").await?,
                Err(Failure::Data(reason)) => {
                    transaction
                        .batch_execute("ROLLBACK TO SAVEPOINT half; RELEASE SAVEPOINT half")
                        .await?;
                    let middle = range.start + range.len() / 2;
                    match range.len() {
                        1 => {
                            refused.push(lines.first() + range.start as u64);
                            first_reason.get_or_insert(reason);
                        }
                        _ => left.extend([middle..range.end, range.start..middle]),
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        transaction.rollback().await?;
        Ok((refused, first_reason.unwrap_or_default()))
    }
}
