//! Finds the rows that the server rejects.
//!
//! The server reports that something is wrong, and not always where. So rows are tried in halves, each half behind a
//! savepoint and after the valid rows before it, because a row may be invalid only beside another. The transaction is
//! rolled back.

use super::copy::CopyLines;
use super::error::Failure;
use super::session::{Session, copy};

/// The most rows to find at a time.
const REFUSED_MAX: usize = 100;

impl Session {
    /// `reason` is the server's error for all of the rows.
    pub(super) async fn find_refused(&mut self, lines: &CopyLines, reason: String) -> Failure {
        match self.try_halves(lines).await {
            Ok((rows, reason)) if !rows.is_empty() => Failure::Refused { rows, reason },
            // All rows are valid now: the error involved rows of another writer.
            Ok(_) => Failure::Unavailable(reason),
            Err(failure) => failure,
        }
    }

    async fn try_halves(&mut self, lines: &CopyLines) -> Result<(Vec<u64>, String), Failure> {
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
