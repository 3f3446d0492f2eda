//! Opens the outputs that a job file declares.

use std::sync::Arc;

use highwater_connect::{
    Clusters, OpenResult, OutputContext, OutputSettings, OutsideAccess, StdoutOutput,
};
use highwater_env::Disk;
use highwater_log::{Log, TransactionCoordinator};
use highwater_queue::Queues;

use super::{EndpointRequest, Endpoints};

/// Opens the endpoints that job files declare. An output that the file does not declare goes to standard output.
pub struct DeclaredEndpoints {
    pub hubs: Option<(Arc<dyn Log>, Arc<dyn TransactionCoordinator>)>,
    pub queues: Option<Queues>,
    pub clusters: Option<Arc<dyn Clusters>>,
    pub disk: Arc<dyn Disk>,
    pub access: OutsideAccess,
}

impl Endpoints for DeclaredEndpoints {
    fn open(&self, request: &EndpointRequest<'_>) -> OpenResult {
        let context = OutputContext {
            job: request.job.to_owned(),
            output: request.output.to_owned(),
            refused_by: request.refused_by.map(str::to_owned),
            epoch: request.epoch,
            early_key: request.early_key.clone(),
            shard: request.shard,
            folder: request.folder.to_owned(),
            hubs: self.hubs.clone(),
            queues: self.queues.clone(),
            clusters: self.clusters.clone(),
            disk: self.disk.clone(),
            access: self.access.clone(),
        };
        let names = request.names.to_vec();
        match request.declared {
            Some(output) => output.settings.open(names, &context),
            None => StdoutOutput::default().open(names, &context),
        }
    }
}
