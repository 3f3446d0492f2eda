//! Outputs as the job file declares them.

use std::sync::Arc;

use highwater_connect::{
    Endpoint, EndpointError, FilesOutput, OutputContext, OutputSpec, open_output,
};
use highwater_env::Disk;
use highwater_log::{Log, Transactions};
use highwater_queue::Queues;

use super::{EndpointRequest, Endpoints};
use crate::config::{Output, Sink};

/// Opens what job files declare; an output that is not declared goes to standard output.
pub struct DeclaredEndpoints {
    pub hubs: Option<(Arc<dyn Log>, Arc<dyn Transactions>)>,
    pub queues: Option<Queues>,
    pub disk: Arc<dyn Disk>,
}

impl Endpoints for DeclaredEndpoints {
    fn open(&self, which: &EndpointRequest<'_>) -> Result<Box<dyn Endpoint>, EndpointError> {
        let mut spec = which.declared.map_or(OutputSpec::Stdout, spec_of);
        // Rows that others refused are numbered apart, so they are an output of their own.
        let output = match which.refused_by {
            None => which.output.to_owned(),
            Some(other) => format!("{}-of-{other}", which.output),
        };
        if let OutputSpec::Files(files) = &mut spec {
            files.epoch = which.epoch;
            if let Some(other) = which.refused_by {
                files.location = format!("{}/refused-by-{other}", files.location);
            }
        }
        let context = OutputContext {
            job: which.job.to_owned(),
            output,
            hubs: self.hubs.clone(),
            queues: self.queues.clone(),
            disk: self.disk.clone(),
        };
        open_output(&spec, which.names.to_vec(), &context)
    }
}

/// A path is a folder where it is written to for ever.
fn spec_of(output: &Output) -> OutputSpec {
    match &output.sink {
        Sink::Live(spec) => spec.clone(),
        Sink::Stdout => OutputSpec::Stdout,
        Sink::File(path) => {
            let location = path.display().to_string();
            OutputSpec::Files(FilesOutput::new(location, output.format))
        }
    }
}
