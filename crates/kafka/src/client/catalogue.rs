//! The hubs of a cluster, as they were when the catalogue was last read, and the ways to change them.

use std::sync::Arc;

use highwater_log::{
    AdminError, BoxFuture, HubId, HubInfo, HubName, HubSettings, HubSpec, Log, Partition,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
};

use super::Remote;
use super::cluster::{Cluster, ClusterRequest, Destination, TOPIC};
use super::errors::{Failure, admin_error, all_ok, ok_or};
use super::groups::millis;
use super::retry::Retry;
use crate::handlers::configs::settings;
use crate::handlers::{text, topic};

/// So that the time of a record is that of the log, as everywhere else here.
const LOG_TIME: (&str, &str) = ("message.timestamp.type", "LogAppendTime");

impl Log for Remote {
    /// As of the last reading of the catalogue, at most [`refresh`](super::Options::refresh) ago.
    fn hubs(&self) -> Vec<Arc<HubInfo>> {
        let view = self.cluster().view();
        view.hubs
            .values()
            .map(|topic| Arc::clone(&topic.info))
            .collect()
    }

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        self.cluster().hub(name)
    }

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>> {
        let view = self.cluster().view();
        let mut hubs = view.hubs.values();
        let found = hubs.find(|topic| topic.info.id == id);
        found.map(|topic| Arc::clone(&topic.info))
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let partition = self.remote_partition(hub, partition)?;
        Some(Arc::new(partition))
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let (requested, max) = (spec.partitions, HubSpec::PARTITIONS_MAX);
            if !(1..=max).contains(&requested) {
                return Err(AdminError::Partitions { requested, max });
            }
            let created = cluster.ask(
                ClusterRequest::new(Destination::Controller),
                |_| create_request(&cluster, &spec),
                |answer| {
                    let one = answer.topics.into_iter().next();
                    let one = one.ok_or(Code::UnknownServerError)?;
                    ok_or(one.error_code, one.error_message)
                },
            );
            let created = created.await;
            let created = created.map_err(|failure| admin_error(&spec.name, requested, failure));
            // One that exists is seen from now on, too, whoever made it.
            if matches!(created, Ok(()) | Err(AdminError::Exists(_))) {
                shown(&cluster, &spec.name, |hub| hub.is_some()).await?;
            }
            created?;
            found(&cluster, &spec.name)
        })
    }

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>> {
        let (cluster, name) = (self.cluster(), name.clone());
        Box::pin(async move {
            let timeout_ms = millis(cluster.options.request_timeout);
            let request = |_| {
                DeleteTopicsRequest::default()
                    .with_topic_names(vec![topic(name.as_str())])
                    .with_timeout_ms(timeout_ms)
            };
            let deleted = cluster.ask(
                ClusterRequest::new(Destination::Controller),
                request,
                |answer| {
                    let codes = answer.responses.iter().map(|one| one.error_code);
                    all_ok(codes)
                },
            );
            deleted
                .await
                .map_err(|failure| admin_error(&name, 0, failure))?;
            shown(&cluster, &name, |hub| hub.is_none()).await
        })
    }

    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let (cluster, name) = (self.cluster(), name.clone());
        Box::pin(async move {
            let (hub, max) = (found(&cluster, &name)?, HubSpec::PARTITIONS_MAX);
            let (requested, have) = (partitions, hub.partitions);
            match requested {
                _ if requested > max => return Err(AdminError::Partitions { requested, max }),
                _ if requested < have => return Err(AdminError::Shrink { hub: name, have }),
                _ if requested == have => return Ok(hub),
                _ => {}
            }
            let timeout_ms = millis(cluster.options.request_timeout);
            let request = |_| {
                let grown = CreatePartitionsTopic::default()
                    .with_name(topic(name.as_str()))
                    .with_count(partitions as i32)
                    .with_assignments(None);
                CreatePartitionsRequest::default()
                    .with_topics(vec![grown])
                    .with_timeout_ms(timeout_ms)
            };
            let grown = cluster.ask(
                ClusterRequest::new(Destination::Controller),
                request,
                |answer| {
                    let one = answer.results.into_iter().next();
                    let one = one.ok_or(Code::UnknownServerError)?;
                    ok_or(one.error_code, one.error_message)
                },
            );
            let failed = |failure| admin_error(&name, partitions, failure);
            grown.await.map_err(failed)?;
            let has_grown =
                |hub: Option<&HubInfo>| hub.is_some_and(|hub| hub.partitions >= partitions);
            shown(&cluster, &name, has_grown).await?;
            found(&cluster, &name)
        })
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let (cluster, name) = (self.cluster(), name.clone());
        Box::pin(async move {
            let changed = cluster.ask(
                ClusterRequest::new(Destination::Controller),
                |_| change_request(&name, &settings),
                |answer| {
                    let one = answer.responses.into_iter().next();
                    let one = one.ok_or(Code::UnknownServerError)?;
                    ok_or(one.error_code, one.error_message)
                },
            );
            let failed = |failure| admin_error(&name, 0, failure);
            changed.await.map_err(failed)?;
            let is_so = |hub: Option<&HubInfo>| hub.is_some_and(|hub| hub.settings == settings);
            shown(&cluster, &name, is_so).await?;
            found(&cluster, &name)
        })
    }
}

fn create_request(cluster: &Cluster, spec: &HubSpec) -> CreateTopicsRequest {
    let configs = settings::values(&spec.settings);
    let configs = configs
        .iter()
        .map(|(name, value, _)| (*name, value.as_str()));
    let configs = configs.chain([LOG_TIME]).map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    });
    let made = CreatableTopic::default()
        .with_name(topic(spec.name.as_str()))
        .with_num_partitions(spec.partitions as i32)
        .with_replication_factor(cluster.options.replication)
        .with_configs(configs.collect());
    CreateTopicsRequest::default()
        .with_topics(vec![made])
        .with_timeout_ms(millis(cluster.options.request_timeout))
}

fn change_request(name: &HubName, settings: &HubSettings) -> IncrementalAlterConfigsRequest {
    let values = settings::values(settings).into_iter();
    let configs = values.map(|(name, value, _)| {
        AlterableConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(name.as_str()))
        .with_configs(configs.collect());
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

/// Reads the catalogue until it shows the change.
async fn shown(
    cluster: &Cluster,
    name: &HubName,
    shows: impl Fn(Option<&HubInfo>) -> bool,
) -> Result<(), AdminError> {
    let mut retry = Retry::new(&cluster.options);
    loop {
        let seen = cluster.view().number;
        let read = cluster.refresh(seen).await;
        if shows(cluster.hub(name.as_str()).as_deref()) {
            return Ok(());
        }
        if !retry.pause().await {
            let reason = match read {
                Ok(()) => "it was carried out, but the catalogue does not show it".into(),
                Err(error) => Failure::Call(error).to_string(),
            };
            return Err(AdminError::Storage(reason));
        }
    }
}

fn found(cluster: &Cluster, name: &HubName) -> Result<Arc<HubInfo>, AdminError> {
    let hub = cluster.hub(name.as_str());
    hub.ok_or_else(|| AdminError::Unknown(name.clone()))
}
