//! Opens the outputs that a job file declares.

use std::sync::Arc;

use highwater_connect::{
    Endpoint, EndpointError, FilesOutput, OutputContext, OutputSettings, StdoutOutput,
};
use highwater_env::Disk;
use highwater_log::{Log, TransactionCoordinator};
use highwater_queue::Queues;

use super::{EndpointRequest, Endpoints};
use crate::config::{Output, Sink};

/// Opens the endpoints that job files declare. An output that the file does not declare goes to standard output.
pub struct DeclaredEndpoints {
    pub hubs: Option<(Arc<dyn Log>, Arc<dyn TransactionCoordinator>)>,
    pub queues: Option<Queues>,
    pub disk: Arc<dyn Disk>,
}

impl Endpoints for DeclaredEndpoints {
    fn open(&self, request: &EndpointRequest<'_>) -> Result<Box<dyn Endpoint>, EndpointError> {
        let context = OutputContext {
            job: request.job.to_owned(),
            output: request.output.to_owned(),
            refused_by: request.refused_by.map(str::to_owned),
            epoch: request.epoch,
            folder: request.folder.to_owned(),
            hubs: self.hubs.clone(),
            queues: self.queues.clone(),
            disk: self.disk.clone(),
        };
        let settings = request
            .declared
            .map_or(Arc::new(StdoutOutput) as _, settings);
        settings.open(request.names.to_vec(), &context)
    }
}

/// A live job writes to a folder where a job over files writes to one file.
fn settings(output: &Output) -> Arc<dyn OutputSettings> {
    match &output.sink {
        Sink::Live(settings) => Arc::clone(settings),
        Sink::Stdout => Arc::new(StdoutOutput),
        Sink::File(path) => Arc::new(FilesOutput::new(path.display().to_string(), output.format)),
    }
}
