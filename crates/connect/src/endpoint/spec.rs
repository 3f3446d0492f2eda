//! Any output, as a job describes it, and the way to open it.

use std::sync::Arc;

use highwater_env::Disk;
use highwater_log::{Log, Transactions};
use highwater_query::plan::Name;
use highwater_queue::Queues;

use super::files::FilesEndpoint;
use super::hub::HubEndpoint;
#[cfg(feature = "postgres")]
use super::postgres::{PostgresEndpoint, PostgresOutput};
use super::queue::{QueueEndpoint, QueueOutput};
use super::stdout::StdoutEndpoint;
use super::webhook::WebhookEndpoint;
use super::{Endpoint, EndpointError, FilesOutput, HubOutput, WebhookOutput};

/// Where rows are to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputSpec {
    Hub(HubOutput),
    Files(FilesOutput),
    #[cfg(feature = "postgres")]
    Postgres(PostgresOutput),
    Webhook(WebhookOutput),
    Queue(QueueOutput),
    /// Lines of JSON.
    Stdout,
}

impl OutputSpec {
    /// Whether rows arrive exactly once, and not at least once.
    pub fn is_exactly_once(&self) -> bool {
        match self {
            OutputSpec::Hub(_) | OutputSpec::Files(_) | OutputSpec::Queue(_) => true,
            #[cfg(feature = "postgres")]
            OutputSpec::Postgres(_) => true,
            OutputSpec::Webhook(_) | OutputSpec::Stdout => false,
        }
    }
}

/// Whose output it is, and what there is to write to.
#[derive(Clone)]
pub struct OutputContext {
    /// Together with `output` the name by which others know the output: a job must keep it, and no two may share it.
    pub job: String,
    pub output: String,
    /// Hubs, where there are any.
    pub hubs: Option<(Arc<dyn Log>, Arc<dyn Transactions>)>,
    /// Queues, where there are any.
    pub queues: Option<Queues>,
    pub disk: Arc<dyn Disk>,
}

impl OutputContext {
    fn id(&self) -> String {
        format!("{}/{}", self.job, self.output)
    }
}

/// Opens an output for rows whose columns show up under these names. Nobody is called before [`Endpoint::resume`].
pub fn open_output(
    spec: &OutputSpec,
    names: Vec<Name>,
    context: &OutputContext,
) -> Result<Box<dyn Endpoint>, EndpointError> {
    Ok(match spec {
        OutputSpec::Hub(output) => {
            let hubs = context.hubs.clone();
            let (log, transactions) = hubs.ok_or_else(|| {
                EndpointError::unfit("there are no hubs here: run the job with `highwater up`")
            })?;
            let id = context.id();
            Box::new(HubEndpoint::open(output, id, names, log, transactions)?)
        }
        OutputSpec::Files(output) => {
            let disk = Arc::clone(&context.disk);
            Box::new(FilesEndpoint::open(output, names, disk)?)
        }
        #[cfg(feature = "postgres")]
        OutputSpec::Postgres(output) => Box::new(PostgresEndpoint::new(
            output.clone(),
            context.job.clone(),
            context.output.clone(),
            names,
        )),
        OutputSpec::Webhook(output) => {
            Box::new(WebhookEndpoint::open(output, context.id(), names)?)
        }
        OutputSpec::Queue(output) => {
            let queues = context.queues.clone().ok_or_else(|| {
                EndpointError::unfit("there are no queues here: run the job with `highwater up`")
            })?;
            let id = context.id();
            Box::new(QueueEndpoint::open(output, id, names, queues)?)
        }
        OutputSpec::Stdout => Box::new(StdoutEndpoint::new(names)),
    })
}
