//! `highwater workflow supervise`: a supervisor of workflows as a process of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use highwater_env::{EgressPolicy, RealClock, shutdown_signal};
use highwater_workflow::call::{Functions, ServicePools};
use highwater_workflow::supervise::{
    Claim, ClaimResponse, FailedInstanceError, FailedInstanceSource, Options, OutcomeReport,
    ReleaseRequest, ReportResponse, Supervisor,
};
use hyper::Method;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::client::{Client, Server, percent_encode};
use crate::exit::{ExitStatus, UsageError};
use crate::logging::Logging;
use crate::signals::ShutdownSignals;

#[derive(clap::Args)]
pub(crate) struct Supervise {
    /// The workflows to supervise [default: all with the setting `supervisor = "elsewhere"`]
    workflows: Vec<String>,
    /// Seconds without contact after which another supervisor takes over
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    lock: u64,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    logging: Logging,
}

/// A workflow in the list of the node.
#[derive(Deserialize)]
struct WorkflowInfo {
    name: String,
    partitions: u32,
    supervisor: String,
}

/// Pause between attempts to reach the node.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long a response may take beyond the requested wait.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

impl Supervise {
    pub(super) async fn run(self) -> anyhow::Result<ExitStatus> {
        self.logging.start()?;
        let mut signals = ShutdownSignals::new().context("cannot listen for signals")?;
        let workflows = tokio::select! {
            workflows = self.find_workflows() => workflows?,
            () = signals.next() => return Ok(ExitStatus::Success),
        };
        let clock = Arc::new(RealClock::new());
        let egress = EgressPolicy::default();
        let pools = ServicePools::new(clock.clone(), Functions::new(), egress);
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for workflow in &workflows {
            eprintln!("supervising {}", workflow.name);
            for partition in 0..workflow.partitions {
                let supervisor = Supervisor {
                    source: Arc::new(RemoteFailedInstances::new(
                        &self.server,
                        &workflow.name,
                        partition,
                    )?),
                    clock: clock.clone(),
                    pools: pools.clone(),
                    options: Options {
                        lock: Duration::from_secs(self.lock),
                        ..Options::default()
                    },
                };
                tasks.spawn(supervisor.run(shutdown_signal(stop.subscribe())));
            }
        }
        signals.next().await;
        stop.send_replace(true);
        tasks.join_all().await;
        Ok(ExitStatus::Success)
    }

    /// Retries until the node answers: it may start later than the supervisor.
    async fn find_workflows(&self) -> anyhow::Result<Vec<WorkflowInfo>> {
        let mut client = Client::new(&self.server)?;
        let mut reported = false;
        let answer = loop {
            match client.get("/api/workflows").await {
                Ok(answer) if answer.status != 503 => break answer.success()?,
                Ok(_) => {}
                Err(error) if !reported => {
                    eprintln!("{error:#}; waiting for the node");
                    reported = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        };
        let listed = answer.json()?["workflows"].take();
        let listed: Vec<WorkflowInfo> = serde_json::from_value(listed)?;
        for name in &self.workflows {
            if !listed
                .iter()
                .any(|workflow| workflow.name == *name && workflow.has_remote_supervisor())
            {
                let message = format!(
                    "the node runs the supervisor of workflow {name} itself: set supervisor = \"elsewhere\" for it"
                );
                return Err(UsageError(message).into());
            }
        }
        let is_chosen = |workflow: &WorkflowInfo| {
            self.workflows.is_empty() || self.workflows.contains(&workflow.name)
        };
        let chosen: Vec<WorkflowInfo> = listed
            .into_iter()
            .filter(|workflow| workflow.has_remote_supervisor() && is_chosen(workflow))
            .collect();
        match chosen.is_empty() {
            true => Err(
                UsageError("the node runs the supervisors of all workflows itself".into()).into(),
            ),
            false => Ok(chosen),
        }
    }
}

impl WorkflowInfo {
    fn has_remote_supervisor(&self) -> bool {
        self.supervisor == "elsewhere"
    }
}

/// The failed instances of a partition, over HTTP. Claims wait for work, so they have a connection of their own.
struct RemoteFailedInstances {
    path: String,
    claims: Arc<Mutex<Client>>,
    reports: Arc<Mutex<Client>>,
}

impl RemoteFailedInstances {
    fn new(
        server: &Server,
        workflow: &str,
        partition: u32,
    ) -> anyhow::Result<RemoteFailedInstances> {
        Ok(RemoteFailedInstances {
            path: format!(
                "/api/workflows/{}/failed/{partition}",
                percent_encode(workflow)
            ),
            claims: Arc::new(Mutex::new(Client::new(server)?)),
            reports: Arc::new(Mutex::new(Client::new(server)?)),
        })
    }

    fn post<Q: Serialize, A: for<'a> Deserialize<'a>>(
        &self,
        client: &Arc<Mutex<Client>>,
        operation: &str,
        request: &Q,
        timeout: Duration,
    ) -> impl Future<Output = Result<A, FailedInstanceError>> + Send + use<Q, A> {
        let path = format!("{}/{operation}", self.path);
        let body = serde_json::to_vec(request);
        let client = Arc::clone(client);
        async move {
            let away = |error: anyhow::Error| FailedInstanceError::Away(format!("{error:#}"));
            let body = body.map_err(|error| away(error.into()))?;
            let mut client = client.lock().await;
            let kind = [("content-type", "application/json")];
            let response = client.request(Method::POST, &path, &kind, Bytes::from(body));
            let answer = tokio::time::timeout(timeout, response).await;
            let answer = answer
                .map_err(|_| FailedInstanceError::Away(format!("no answer within {timeout:?}")))?
                .map_err(away)?;
            let answer = answer.success().map_err(|error| away(error.into()))?;
            serde_json::from_slice(&answer.body).map_err(|error| away(error.into()))
        }
    }
}

type SourceFuture<T> =
    std::pin::Pin<Box<dyn Future<Output = Result<T, FailedInstanceError>> + Send>>;

impl FailedInstanceSource for RemoteFailedInstances {
    fn claim(&self, claim: Claim) -> SourceFuture<ClaimResponse> {
        let timeout = RESPONSE_TIMEOUT + Duration::from_millis(claim.wait_ms);
        Box::pin(self.post(&self.claims, "claim", &claim, timeout))
    }

    fn report(&self, report: OutcomeReport) -> SourceFuture<ReportResponse> {
        Box::pin(self.post(&self.reports, "report", &report, RESPONSE_TIMEOUT))
    }

    fn release(&self, request: ReleaseRequest) -> SourceFuture<()> {
        let response = self.post(&self.reports, "return", &request, RESPONSE_TIMEOUT);
        Box::pin(async move { response.await.map(|_: serde::de::IgnoredAny| ()) })
    }
}
