//! `highwater workflow supervise`: the supervisor of workflows as a process of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use highwater_env::RealClock;
use highwater_workflow::call::{Functions, Lanes};
use highwater_workflow::supervise::{
    Claim, Desk, DeskError, Farewell, Offer, Options, Report, Supervisor, Taken,
};
use hyper::Method;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::client::{Client, Server, escape};
use crate::exit::{BadRequest, Ending};
use crate::logging::Logging;
use crate::signals::Signals;

#[derive(clap::Args)]
pub struct Supervise {
    /// The workflows; by default all whose settings say `supervisor = "elsewhere"`
    workflows: Vec<String>,
    /// Seconds of silence after which another supervisor takes over from this one
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    lock: u64,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    logging: Logging,
}

/// A workflow as the server lists it.
#[derive(Deserialize)]
struct Listed {
    name: String,
    partitions: u32,
    supervisor: String,
}

/// How long to wait before a server is asked again that does not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// How long an answer may take beyond the time that was asked for.
const PATIENCE: Duration = Duration::from_secs(30);

impl Supervise {
    pub async fn run(self) -> anyhow::Result<Ending> {
        self.logging.start()?;
        let mut signals = Signals::new().context("cannot listen for signals")?;
        let wanted = tokio::select! {
            wanted = self.find() => wanted?,
            () = signals.next() => return Ok(Ending::Well),
        };
        let clock = Arc::new(RealClock::new());
        let lanes = Lanes::new(clock.clone(), Functions::new());
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for workflow in &wanted {
            eprintln!("supervising {}", workflow.name);
            for partition in 0..workflow.partitions {
                let supervisor = Supervisor {
                    desk: Arc::new(Remote::new(&self.server, &workflow.name, partition)?),
                    clock: clock.clone(),
                    lanes: lanes.clone(),
                    options: Options {
                        lock: Duration::from_secs(self.lock),
                        ..Options::default()
                    },
                };
                let mut stop = stop.subscribe();
                tasks.spawn(supervisor.run(async move {
                    let _ = stop.wait_for(|stop| *stop).await;
                }));
            }
        }
        signals.next().await;
        stop.send_replace(true);
        tasks.join_all().await;
        Ok(Ending::Well)
    }

    /// Asks until the server answers: it may come later than we do.
    async fn find(&self) -> anyhow::Result<Vec<Listed>> {
        let mut client = Client::new(&self.server)?;
        let mut told = false;
        let answer = loop {
            match client.get("/api/workflows").await {
                Ok(answer) if answer.status != 503 => break answer.success()?,
                Ok(_) => {}
                Err(error) if !told => {
                    eprintln!("{error:#}; waiting for it");
                    told = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(AGAIN).await;
        };
        let listed = answer.json()?["workflows"].take();
        let listed: Vec<Listed> = serde_json::from_value(listed)?;
        for name in &self.workflows {
            if !listed.iter().any(|it| it.name == *name && it.is_lent()) {
                let message = format!(
                    "the server lends out nothing of workflow {name}: write supervisor = \"elsewhere\" in its settings"
                );
                return Err(BadRequest(message).into());
            }
        }
        let wanted = |it: &Listed| self.workflows.is_empty() || self.workflows.contains(&it.name);
        let wanted: Vec<Listed> = listed
            .into_iter()
            .filter(|it| it.is_lent() && wanted(it))
            .collect();
        match wanted.is_empty() {
            true => Err(BadRequest("the server undoes everything itself".into()).into()),
            false => Ok(wanted),
        }
    }
}

impl Listed {
    fn is_lent(&self) -> bool {
        self.supervisor == "elsewhere"
    }
}

/// The desk of a partition, at the other end of a connection or two: a claim may wait, a report may not.
struct Remote {
    path: String,
    claims: Arc<Mutex<Client>>,
    reports: Arc<Mutex<Client>>,
}

impl Remote {
    fn new(server: &Server, workflow: &str, partition: u32) -> anyhow::Result<Remote> {
        Ok(Remote {
            path: format!("/api/workflows/{}/failed/{partition}", escape(workflow)),
            claims: Arc::new(Mutex::new(Client::new(server)?)),
            reports: Arc::new(Mutex::new(Client::new(server)?)),
        })
    }

    fn ask<Q: Serialize, A: for<'a> Deserialize<'a>>(
        &self,
        client: &Arc<Mutex<Client>>,
        verb: &str,
        question: &Q,
        within: Duration,
    ) -> impl Future<Output = Result<A, DeskError>> + Send + use<Q, A> {
        let path = format!("{}/{verb}", self.path);
        let body = serde_json::to_vec(question);
        let client = Arc::clone(client);
        async move {
            let away = |error: anyhow::Error| DeskError::Away(format!("{error:#}"));
            let body = body.map_err(|error| away(error.into()))?;
            let mut client = client.lock().await;
            let kind = [("content-type", "application/json")];
            let asking = client.request(Method::POST, &path, &kind, Bytes::from(body));
            let answer = tokio::time::timeout(within, asking).await;
            let answer = answer
                .map_err(|_| DeskError::Away(format!("no answer within {within:?}")))?
                .map_err(away)?;
            let answer = answer.success().map_err(|error| away(error.into()))?;
            serde_json::from_slice(&answer.body).map_err(|error| away(error.into()))
        }
    }
}

type Pending<T> = std::pin::Pin<Box<dyn Future<Output = Result<T, DeskError>> + Send>>;

impl Desk for Remote {
    fn claim(&self, claim: Claim) -> Pending<Offer> {
        let within = PATIENCE + Duration::from_millis(claim.wait_ms);
        Box::pin(self.ask(&self.claims, "claim", &claim, within))
    }

    fn report(&self, report: Report) -> Pending<Taken> {
        Box::pin(self.ask(&self.reports, "report", &report, PATIENCE))
    }

    fn give_back(&self, farewell: Farewell) -> Pending<()> {
        let said = self.ask(&self.reports, "return", &farewell, PATIENCE);
        Box::pin(async move { said.await.map(|_: serde::de::IgnoredAny| ()) })
    }
}
