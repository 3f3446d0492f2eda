//! Rows in a PostgreSQL table, exactly once: the number of the next row is stored in the same transaction.
//!
//! The table `highwater_outputs` has a row per output of a job. A write advances the number there and copies the rows
//! in one transaction; after a failure the number tells which rows are stored. Each start of an output also raises
//! `run`, which fences an earlier start that was thought dead.
//!
//! Rows are sent as text by COPY, which the server reads fastest, and the server parses the values by the types of its
//! columns. With a key they go through a temporary table, from which the last row of each key is merged.

mod copy;
mod error;
mod refused_rows;
mod session;
mod table;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_query::plan::Name;

use super::registry::read_timeout;
use super::state::{self, EndpointKind};
use super::{
    Endpoint, EndpointError, EndpointFuture, OpenResult, OutputContext, OutputKind, OutputSettings,
    OutsideAccess, Rows,
};
use crate::rows::RowNames;
use copy::CopyLines;
use error::Failure;
use session::Session;

/// The settings of an output to a table.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresOutput {
    /// A URL such as `postgres://user:password@host:5432/database?sslmode=require`, or a list of `key=value` pairs.
    pub connection: String,
    pub table: String,
    /// A row replaces the row with the same values in these columns, which need a unique index. Without them every row
    /// is inserted.
    pub key: Vec<String>,
    /// For one write.
    pub timeout: Duration,
    /// Certificates in PEM form to trust beside those of the system.
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
    read: |reader, section| {
        let example = "postgres://user@host/database";
        let connection = reader.required_text(section, "connection", example)?;
        let table = reader.required_text(section, "table", "alerts")?;
        let mut output = PostgresOutput::new(connection, table);
        output.key = reader.texts(section, "key", "plate").unwrap_or_default();
        output.timeout = read_timeout(reader, section).unwrap_or(output.timeout);
        output.ca = reader.text(section, "ca", "-----BEGIN CERTIFICATE-----");
        Some(Arc::new(output))
    },
    missing_feature: None,
};

impl OutputSettings for PostgresOutput {
    fn check(&self, access: &OutsideAccess, _: &Path) -> Result<(), String> {
        let checked = access.secrets.check_text(&self.connection);
        checked.map_err(|error| error.to_string())
    }

    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult {
        Ok(Box::new(PostgresEndpoint {
            output: self.clone(),
            access: context.access.clone(),
            owner: Owner {
                job: context.job.clone(),
                output: context.output_name(),
                run: 0,
            },
            names: RowNames::new(names),
            early_key: context.early_key.clone(),
            session: None,
            next: 0,
            has_checkpoint: false,
        }))
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

/// Identifies the output's row in `highwater_outputs`.
#[derive(Clone, Debug)]
struct Owner {
    job: String,
    output: String,
    /// The number of this run, set by [`Endpoint::resume`].
    run: i64,
}

struct PostgresEndpoint {
    output: PostgresOutput,
    access: OutsideAccess,
    owner: Owner,
    names: RowNames,
    /// See [`OutputContext::early_key`].
    early_key: Option<Vec<String>>,
    session: Option<Session>,
    /// The number of the next row, as stored in the database.
    next: u64,
    /// A checkpoint has been taken, so a restart can find the written rows.
    has_checkpoint: bool,
}

impl PostgresEndpoint {
    async fn start(&mut self, state: Option<&[u8]>) -> Result<(), Failure> {
        let saved = match state {
            Some(_) => Some(state::to_number(EndpointKind::Postgres, state)?),
            None => None,
        };
        let session = self.connect().await?;
        let (next, run) = session.begin_run(&self.owner, saved).await?;
        if let Some(saved) = saved
            && next < saved
        {
            return Err(Failure::Unfit(format!(
                "the database has rows up to {next} of this output and the checkpoint goes up to {saved}: was an older state of the database restored? Start the job from an earlier time or from the beginning"
            )));
        }
        self.owner.run = run;
        self.next = next;
        self.has_checkpoint = saved.is_some();
        self.session = Some(session);
        Ok(())
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let early_key = self.early_key.as_deref();
        Session::open(&self.output, &self.access, &self.names, early_key).await
    }

    /// Reconnects after a failure, and reads the number of the next row.
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
        if !self.has_checkpoint {
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
        let lines = CopyLines::encode(rows, new, names, session.table())?;
        match session.store(&owner, &lines).await {
            Err(Failure::Data(reason)) => Err(session.find_refused(&lines, reason).await),
            stored => {
                stored?;
                self.next = lines.end();
                Ok(())
            }
        }
    }

    /// Applies the timeout, and drops a session whose state is unknown.
    async fn with_timeout(&mut self, operation: Operation<'_>) -> Result<(), EndpointError> {
        let limit = self.output.timeout;
        let done = tokio::time::timeout(limit, async {
            match operation {
                Operation::Start(state) => self.start(state).await,
                Operation::Store(rows) => self.store(rows).await,
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

enum Operation<'a> {
    Start(Option<&'a [u8]>),
    Store(&'a Rows),
}

impl Endpoint for PostgresEndpoint {
    fn resume<'a>(&'a mut self, state: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        Box::pin(self.with_timeout(Operation::Start(state)))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()> {
        Box::pin(self.with_timeout(Operation::Store(rows)))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        self.has_checkpoint = true;
        let state = state::of_number(EndpointKind::Postgres, self.next);
        Box::pin(std::future::ready(Ok(state)))
    }
}
