//! Rows in a table of PostgreSQL, exactly once: the number of the next row is stored in the same transaction.
//!
//! The table `highwater_outputs` has a row for every output of every job. A write moves its number forward and copies
//! the rows in, both or neither; whoever comes back after a failure reads there how far things went. Each start of an
//! output also raises `run`, without which a start that was thought dead could go on writing.
//!
//! Rows travel as text by COPY, which is what the server reads fastest, and the server makes values of them by the
//! types of its columns. With a key they go through a temporary table, from which the last row of each key is merged.

mod connection;
mod copy;
mod error;
mod refuse;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use highwater_query::plan::Name;

use super::mark::{self, Kind};
use super::{Endpoint, EndpointError, OutputContext, OutputKind, OutputSettings, Rows, Underway};
use crate::rows::RowNames;
use connection::Session;
use copy::Lines;
use error::Failure;

/// An output that is a table.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresOutput {
    /// As `postgres://user:password@host:5432/database?sslmode=require`, or in words.
    pub connection: String,
    pub table: String,
    /// A row replaces the one with the same values in these columns, which a unique index must cover. Without them
    /// every row is a new one.
    pub key: Vec<String>,
    /// For one write.
    pub timeout: Duration,
    /// Certificates in PEM form that are believed beside those of the system.
    pub ca: Option<String>,
}

impl PostgresOutput {
    pub fn new(connection: impl Into<String>, table: impl Into<String>) -> PostgresOutput {
        PostgresOutput {
            connection: connection.into(),
            table: table.into(),
            key: Vec::new(),
            timeout: Duration::from_secs(30),
            ca: None,
        }
    }
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "postgres",
    keys: &["connection", "table", "key", "timeout", "ca"],
    read: |from| {
        let connection = from.required_text("connection", "postgres://user@host/database")?;
        let table = from.required_text("table", "alerts")?;
        let mut output = PostgresOutput::new(connection, table);
        output.key = from.texts("key", "plate").unwrap_or_default();
        output.timeout = from.timeout().unwrap_or(output.timeout);
        output.ca = from.text("ca", "-----BEGIN CERTIFICATE-----");
        Some(Arc::new(output))
    },
    missing_feature: None,
};

impl OutputSettings for PostgresOutput {
    fn open(
        &self,
        names: Vec<Name>,
        context: &OutputContext,
    ) -> Result<Box<dyn Endpoint>, EndpointError> {
        Ok(Box::new(PostgresEndpoint::new(
            self.clone(),
            context.job.clone(),
            context.output_name(),
            names,
        )))
    }
}

impl fmt::Debug for PostgresOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOutput")
            .field("table", &self.table)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Which row of `highwater_outputs` is ours.
#[derive(Clone, Debug)]
struct Owner {
    job: String,
    output: String,
    /// Ours alone, from [`Endpoint::resume`] on.
    run: i64,
}

pub(super) struct PostgresEndpoint {
    output: PostgresOutput,
    owner: Owner,
    names: RowNames,
    session: Option<Session>,
    /// The number of the next row, as the server knows it.
    next: u64,
    /// There is a mark to come back to.
    marked: bool,
}

impl PostgresEndpoint {
    pub fn new(
        output: PostgresOutput,
        job: String,
        name: String,
        names: Vec<Name>,
    ) -> PostgresEndpoint {
        PostgresEndpoint {
            output,
            owner: Owner {
                job,
                output: name,
                run: 0,
            },
            names: RowNames::new(names),
            session: None,
            next: 0,
            marked: false,
        }
    }

    async fn start(&mut self, mark: Option<&[u8]>) -> Result<(), Failure> {
        let marked = match mark {
            Some(_) => Some(mark::to_number(Kind::Postgres, mark)?),
            None => None,
        };
        let session = self.connect().await?;
        let (next, run) = session.begin_run(&self.owner, marked).await?;
        if let Some(marked) = marked
            && next < marked
        {
            return Err(Failure::Unfit(format!(
                "the database has rows up to {next} of this output and the checkpoint goes up to {marked}: was an older state of the database restored? Start the job from an earlier time or from the beginning"
            )));
        }
        self.owner.run = run;
        self.next = next;
        self.marked = marked.is_some();
        self.session = Some(session);
        Ok(())
    }

    async fn connect(&self) -> Result<Session, Failure> {
        Session::open(&self.output, &self.names).await
    }

    /// A session that works, after a failure a new one, and what the server knows of us.
    async fn session(&mut self) -> Result<&mut Session, Failure> {
        if self.session.as_ref().is_none_or(Session::is_closed) {
            let session = self.connect().await?;
            self.next = session.next(&self.owner).await?;
            self.session = Some(session);
        }
        match &mut self.session {
            Some(session) => Ok(session),
            None => unreachable!("it was made just now"),
        }
    }

    async fn store(&mut self, rows: &Rows) -> Result<(), Failure> {
        if !self.marked {
            return Err(Failure::Unfit(
                "rows were written to a table before the first checkpoint, so a crash could write them twice".into(),
            ));
        }
        self.session().await?;
        let (next, owner) = (self.next, self.owner.clone());
        let names = &self.names;
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        let new = rows.from(next);
        if new.is_empty() {
            return Ok(());
        }
        let lines = Lines::encode(rows, new, names, session.table())?;
        match session.store(&owner, &lines).await {
            Err(Failure::Data(reason)) => Err(session.find_refused(&lines, reason).await),
            stored => {
                stored?;
                self.next = lines.end();
                Ok(())
            }
        }
    }

    /// Gives an answer in time, and lets go of a session that may be in any state.
    async fn bounded(&mut self, work: Work<'_>) -> Result<(), EndpointError> {
        let limit = self.output.timeout;
        let done = tokio::time::timeout(limit, async {
            match work {
                Work::Start(mark) => self.start(mark).await,
                Work::Store(rows) => self.store(rows).await,
            }
        });
        let failure = match done.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Unavailable(format!("no answer from the database within {limit:?}")),
        };
        if !matches!(failure, Failure::Refused { .. }) {
            self.session = None;
        }
        Err(failure.into())
    }
}

enum Work<'a> {
    Start(Option<&'a [u8]>),
    Store(&'a Rows),
}

impl Endpoint for PostgresEndpoint {
    fn resume<'a>(&'a mut self, mark: Option<&'a [u8]>) -> Underway<'a, Result<(), EndpointError>> {
        Box::pin(self.bounded(Work::Start(mark)))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> Underway<'a, Result<(), EndpointError>> {
        Box::pin(self.bounded(Work::Store(rows)))
    }

    fn settle(&mut self) -> Underway<'_, Result<Vec<u8>, EndpointError>> {
        self.marked = true;
        let mark = mark::of_number(Kind::Postgres, self.next);
        Box::pin(std::future::ready(Ok(mark)))
    }
}
