//! A session with the server, and the statements of a write.

use std::pin::pin;
use std::str::FromStr;

use bytes::Bytes;
use futures_util::SinkExt;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls, Transaction};

use super::copy::CopyLines;
use super::error::Failure;
use super::table::Table;
use super::{OutsideAccess, Owner, PostgresOutput};
use crate::rows::RowNames;

mod server;
mod tls;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS highwater_outputs (
    job text, output text, next bigint NOT NULL, run bigint NOT NULL, PRIMARY KEY (job, output))";

const FIRST_RUN: &str =
    "INSERT INTO highwater_outputs AS o (job, output, next, run) VALUES ($1, $2, 0, 1)
    ON CONFLICT (job, output) DO UPDATE SET next = 0, run = o.run + 1 RETURNING next, run";

const NEXT_RUN: &str = "UPDATE highwater_outputs SET run = run + 1
    WHERE job = $1 AND output = $2 RETURNING next, run";

const LOOK: &str = "SELECT next, run FROM highwater_outputs WHERE job = $1 AND output = $2";

const ADVANCE: &str = "UPDATE highwater_outputs SET next = $4
    WHERE job = $1 AND output = $2 AND run = $3 AND next <= $5";

pub(super) struct Session {
    client: Client,
    table: Table,
}

impl Session {
    pub(super) async fn open(
        output: &PostgresOutput,
        access: &OutsideAccess,
        names: &RowNames,
        early_key: Option<&[String]>,
    ) -> Result<Session, Failure> {
        let client = connect(output, access).await?;
        let table = Table::find(&client, output, names, early_key).await?;
        if let Some(temporary) = table.temporary() {
            client.batch_execute(&temporary).await?;
        }
        Ok(Session { client, table })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// The numbers of the next row and of this run. With `None` the output starts from row 0.
    pub(super) async fn begin_run(
        &self,
        owner: &Owner,
        saved: Option<u64>,
    ) -> Result<(u64, i64), Failure> {
        let there = "SELECT to_regclass('highwater_outputs') IS NOT NULL";
        if !self.client.query_one(there, &[]).await?.get::<_, bool>(0) {
            self.client.batch_execute(CREATE).await?;
        }
        let begin = if saved.is_some() { NEXT_RUN } else { FIRST_RUN };
        let row = self
            .client
            .query_opt(begin, &[&owner.job, &owner.output])
            .await?;
        let row = row.ok_or_else(|| Failure::Unfit(unknown(owner)))?;
        Ok((number(row.get(0)), row.get(1)))
    }

    /// The number of the next row.
    pub(super) async fn next(&self, owner: &Owner) -> Result<u64, Failure> {
        let row = self
            .client
            .query_opt(LOOK, &[&owner.job, &owner.output])
            .await?;
        match row.map(|row| (row.get(0), row.get::<_, i64>(1))) {
            Some((next, run)) if run == owner.run => Ok(number(next)),
            Some(_) => Err(Failure::Unfit(fenced(owner))),
            None => Err(Failure::Unfit(unknown(owner))),
        }
    }

    /// Stores all rows and the number of the row after them, or nothing.
    pub(super) async fn store(&mut self, owner: &Owner, lines: &CopyLines) -> Result<(), Failure> {
        let transaction = self.client.transaction().await?;
        let (first, end) = (lines.first() as i64, lines.end() as i64);
        let moved = transaction
            .execute(
                ADVANCE,
                &[&owner.job, &owner.output, &owner.run, &end, &first],
            )
            .await?;
        if moved != 1 {
            return Err(Failure::Unfit(fenced(owner)));
        }
        copy(&transaction, &self.table, lines.all()).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Starts a transaction for finding refused rows.
    pub(super) async fn attempt(&mut self) -> Result<(Transaction<'_>, &Table), Failure> {
        let transaction = self.client.transaction().await?;
        // Deferred constraints must fail at once, not at the end of the transaction.
        transaction
            .batch_execute("SET CONSTRAINTS ALL IMMEDIATE")
            .await?;
        Ok((transaction, &self.table))
    }
}

/// Copies lines into the table, through the temporary table if there is one.
pub(super) async fn copy(
    transaction: &Transaction<'_>,
    table: &Table,
    lines: Bytes,
) -> Result<(), Failure> {
    let sink = transaction.copy_in(table.copy()).await?;
    let mut sink = pin!(sink);
    sink.send(lines).await?;
    sink.finish().await?;
    if let Some(merge) = table.merge() {
        transaction.batch_execute(merge).await?;
    }
    Ok(())
}

async fn connect(output: &PostgresOutput, access: &OutsideAccess) -> Result<Client, Failure> {
    let unfit = |error: &dyn std::fmt::Display| Failure::Unfit(error.to_string());
    let connection = access.secrets.resolve(&output.connection);
    let connection = connection.map_err(|error| unfit(&error))?;
    // The text contains a password, which the library does not repeat.
    let config = Config::from_str(&connection).map_err(|error| unfit(&error))?;
    let mut config = server::resolved(config, &access.egress).await?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(output.timeout);
    }
    if config.get_application_name().is_none() {
        config.application_name("highwater");
    }
    if config.get_ssl_mode() != SslMode::Require {
        config.ssl_mode(SslMode::Disable);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        return Ok(client);
    }
    let tls = tls::Connector::new(output.ca.as_deref()).map_err(Failure::Unfit)?;
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Only Highwater writes the column, and never a negative number.
fn number(stored: i64) -> u64 {
    stored.max(0) as u64
}

fn unknown(owner: &Owner) -> String {
    format!(
        "table highwater_outputs has no row for output `{}` of job `{}`: is this another database? Start the job from the beginning",
        owner.output, owner.job
    )
}

fn fenced(owner: &Owner) -> String {
    format!(
        "output `{}` of job `{}` was opened again, and only the last to open it may write",
        owner.output, owner.job
    )
}
