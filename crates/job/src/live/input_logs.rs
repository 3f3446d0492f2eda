//! The logs that a job reads: that of the node, and the clusters of its Kafka inputs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_connect::{Cluster, ClusterRef};
use highwater_log::Log;
use highwater_log::batch::TimestampType;

use super::status::StatusHandle;
use super::{JobContext, StartError};
use crate::config::{ArrivalTime, KafkaInput};
use crate::load::Job;

/// The pause before a cluster is tried again: doubles from the first to the second.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Clones share the connections, which a job keeps over its restarts.
#[derive(Clone)]
pub(super) struct InputLogs {
    node: Arc<dyn Log>,
    /// By input of the plan.
    clusters: Arc<Mutex<BTreeMap<usize, Cluster>>>,
}

impl InputLogs {
    pub(super) fn new(node: Arc<dyn Log>) -> InputLogs {
        InputLogs {
            node,
            clusters: Arc::default(),
        }
    }

    /// The log that the input reads; `None` if it is a cluster that was not reached yet.
    pub(super) fn log(&self, job: &Job, input: usize) -> Option<Arc<dyn Log>> {
        match kafka_input(job, input) {
            None => Some(self.node.clone()),
            Some(_) => self.cluster(input).map(|cluster| cluster.log),
        }
    }

    /// Whether an input reads a cluster that was reached.
    pub(super) fn has_clusters(&self) -> bool {
        !self.lock().is_empty()
    }

    /// The cluster of a Kafka input.
    pub(super) fn cluster(&self, input: usize) -> Option<Cluster> {
        self.lock().get(&input).cloned()
    }

    /// Connects to the clusters of all inputs, and tries until they answer.
    pub(super) async fn connect(
        &self,
        job: &Job,
        context: &JobContext,
        status: &StatusHandle,
    ) -> Result<(), StartError> {
        for (input, planned) in job.plan.inputs.iter().enumerate() {
            let Some(kafka) = kafka_input(job, input) else {
                continue;
            };
            let connector = context.clusters.as_ref();
            let connector =
                connector.ok_or_else(|| StartError::NoClusters(planned.name.clone()))?;
            let mut pause = PAUSE;
            while self.cluster(input).is_none() {
                match kafka.cluster.connect(connector, &job.file.folder).await {
                    Ok(cluster) => {
                        self.lock().insert(input, cluster);
                    }
                    Err(reason) => {
                        let name = &planned.name;
                        status.log(format!("the cluster of input \"{name}\": {reason}"));
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            }
            self.check_timestamps(job, input, kafka)?;
        }
        Ok(())
    }

    /// Refuses a topic whose arrival times would be those of producers.
    fn check_timestamps(
        &self,
        job: &Job,
        input: usize,
        kafka: &KafkaInput,
    ) -> Result<(), StartError> {
        let name = &job.plan.inputs[input].name;
        let declared = job.file.input(name);
        let topics = declared.map_or(&[][..], |declared| &declared.hubs);
        let log = self.log(job, input);
        for topic in topics {
            let info = log.as_ref().and_then(|log| log.hub(topic));
            let kind = info.map(|info| info.settings.timestamps.kind);
            if kafka.arrival == ArrivalTime::LogAppend && kind == Some(TimestampType::Create) {
                let setting = match kafka.cluster {
                    ClusterRef::OfNode => "cluster.arrival = \"create-time\" for the node",
                    ClusterRef::Named(_) => "arrival = \"create-time\" for the input",
                };
                return Err(StartError::CreateTime {
                    input: name.clone(),
                    topic: topic.clone(),
                    setting,
                });
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Cluster>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The declaration of an input of the plan, if it is a topic.
pub(super) fn kafka_input(job: &Job, input: usize) -> Option<&KafkaInput> {
    let declared = job.file.input(&job.plan.inputs[input].name)?;
    declared.kafka.as_ref()
}
