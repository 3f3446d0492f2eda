//! The hubs of a cluster: read from the cached catalogue, changed by requests to the controller.

use std::sync::Arc;

use highwater_log::{
    AdminError, BoxFuture, ClaimResult, HubId, HubInfo, HubName, HubSettings, HubSpec, Log,
    Partition,
};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
};
use kafka_protocol::protocol::Request;

use super::Remote;
use super::cluster::{Cluster, Destination, Route, TOPIC};
use super::errors::{BrokerError, Failure, admin_error, all_ok, ok_or, single};
use super::groups::millis;
use super::options::Profile;
use super::retry::Retry;
use crate::handlers::configs::{SET, UNSET, settings};
use crate::handlers::text;

impl Log for Remote {
    /// From the last reading of the catalogue, at most [`refresh`](super::Options::refresh) ago.
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

    fn claim(&self, hub: &str, partition: u32) -> BoxFuture<ClaimResult> {
        let claiming = self.clone().claim_partition(hub.to_owned(), partition);
        Box::pin(async move {
            let claimed = claiming.await?;
            Ok(claimed.map(|partition| Arc::new(partition) as Arc<dyn Partition>))
        })
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let cluster = self.cluster();
        Box::pin(async move {
            let (requested, max) = (spec.partitions, HubSpec::PARTITIONS_MAX);
            if !(1..=max).contains(&requested) {
                return Err(AdminError::Partitions { requested, max });
            }
            if !cluster.options.names.allow(&spec.name) {
                let reason = format!("`{}` is the name of a topic of the node itself", spec.name);
                return Err(AdminError::Settings(reason));
            }
            let request = |_| create_request(&cluster, &spec);
            let created = alter(&cluster, &spec.name, requested, request, |response| {
                let topic = single(response.topics)?;
                ok_or(topic.error_code, topic.error_message)
            });
            let created = created.await;
            // A hub that exists becomes visible now, even if another client created it.
            if matches!(created, Ok(()) | Err(AdminError::Exists(_))) {
                wait_for_catalogue(&cluster, &spec.name, |hub| hub.is_some()).await?;
            }
            created?;
            existing_hub(&cluster, &spec.name)
        })
    }

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>> {
        let (cluster, name) = (self.cluster(), name.clone());
        Box::pin(async move {
            let timeout_ms = millis(cluster.options.request_timeout);
            let request = |_| {
                DeleteTopicsRequest::default()
                    .with_topic_names(vec![cluster.options.names.topic(name.as_str())])
                    .with_timeout_ms(timeout_ms)
            };
            let deleted = alter(&cluster, &name, 0, request, |response| {
                all_ok(response.responses.iter().map(|one| one.error_code))
            });
            deleted.await?;
            wait_for_catalogue(&cluster, &name, |hub| hub.is_none()).await
        })
    }

    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let (cluster, name) = (self.cluster(), name.clone());
        Box::pin(async move {
            let (hub, max) = (existing_hub(&cluster, &name)?, HubSpec::PARTITIONS_MAX);
            let (requested, have) = (partitions, hub.partitions);
            match requested {
                _ if requested > max => return Err(AdminError::Partitions { requested, max }),
                _ if requested < have => return Err(AdminError::Shrink { hub: name, have }),
                _ if requested == have => return Ok(hub),
                _ => {}
            }
            let timeout_ms = millis(cluster.options.request_timeout);
            let request = |_| {
                let topic = CreatePartitionsTopic::default()
                    .with_name(cluster.options.names.topic(name.as_str()))
                    .with_count(partitions as i32)
                    .with_assignments(None);
                CreatePartitionsRequest::default()
                    .with_topics(vec![topic])
                    .with_timeout_ms(timeout_ms)
            };
            let grown = alter(&cluster, &name, partitions, request, |response| {
                let topic = single(response.results)?;
                ok_or(topic.error_code, topic.error_message)
            });
            grown.await?;
            let has_grown =
                |hub: Option<&HubInfo>| hub.is_some_and(|hub| hub.partitions >= partitions);
            wait_for_catalogue(&cluster, &name, has_grown).await?;
            existing_hub(&cluster, &name)
        })
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let (cluster, name) = (self.cluster(), name.clone());
        Box::pin(async move {
            if cluster.options.profile == Profile::EventHubs {
                let reason = "Event Hubs has no settings of topics over the Kafka protocol";
                return Err(AdminError::Settings(reason.into()));
            }
            let request = |_| change_request(&cluster, &name, &settings);
            let changed = alter(&cluster, &name, 0, request, |response| {
                let resource = single(response.responses)?;
                ok_or(resource.error_code, resource.error_message)
            });
            changed.await?;
            let changed = settings::values(&settings);
            let has_changed = |hub: Option<&HubInfo>| {
                hub.is_some_and(|hub| settings::values(&hub.settings) == changed)
            };
            wait_for_catalogue(&cluster, &name, has_changed).await?;
            existing_hub(&cluster, &name)
        })
    }
}

/// Sends a change to the controller.
async fn alter<R: Request>(
    cluster: &Cluster,
    name: &HubName,
    partitions: u32,
    make: impl Fn(i16) -> R,
    read: impl Fn(R::Response) -> Result<(), BrokerError>,
) -> Result<(), AdminError> {
    let route = Route::new(Destination::Controller);
    let altered = cluster.call(route, make, read).await;
    altered.map_err(|failure| admin_error(name, partitions, failure))
}

fn create_request(cluster: &Cluster, spec: &HubSpec) -> CreateTopicsRequest {
    let own = settings::values(&spec.settings).into_iter();
    let own = own.filter(is_explicit);
    let own = own.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let configs = own.chain(spec.settings.ineffective.clone());
    let has_settings = cluster.options.profile == Profile::Kafka;
    let configs = configs.filter(|_| has_settings);
    let configs = configs.map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(cluster.options.names.topic(spec.name.as_str()))
        .with_num_partitions(spec.partitions as i32)
        .with_replication_factor(cluster.options.replication)
        .with_configs(configs.collect());
    CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(millis(cluster.options.request_timeout))
}

/// Whether a setting is sent: it is not the default, or the default of the cluster may be another.
fn is_explicit(own: &(&'static str, Option<String>)) -> bool {
    let defaults = settings::values(&HubSettings::default());
    settings::ALWAYS_EXPLICIT.contains(&own.0) || !defaults.contains(own)
}

fn change_request(
    cluster: &Cluster,
    name: &HubName,
    settings: &HubSettings,
) -> IncrementalAlterConfigsRequest {
    // Older clusters do not know every setting, but defaults can be reset there.
    let values = settings::values(settings).into_iter().map(|own| {
        let is_set = is_explicit(&own);
        (own.0.to_owned(), own.1.filter(|_| is_set))
    });
    let stored = settings.ineffective.clone().into_iter();
    let stored = stored.map(|(name, value)| (name, Some(value)));
    let configs = values.chain(stored).map(|(name, value)| {
        AlterableConfig::default()
            .with_name(text(name))
            .with_config_operation(if value.is_some() { SET } else { UNSET })
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(cluster.options.names.topic(name.as_str()).0)
        .with_configs(configs.collect());
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

/// Reads the catalogue until it has the change.
async fn wait_for_catalogue(
    cluster: &Cluster,
    name: &HubName,
    is_visible: impl Fn(Option<&HubInfo>) -> bool,
) -> Result<(), AdminError> {
    let mut retry = Retry::new(&cluster.options);
    loop {
        let seen = cluster.view().number;
        let read = cluster.refresh(seen).await;
        if is_visible(cluster.hub(name.as_str()).as_deref()) {
            return Ok(());
        }
        if !retry.pause().await {
            let reason = match read {
                Ok(()) => "the change was made, but the catalogue does not show it".into(),
                Err(error) => Failure::Call(error).to_string(),
            };
            return Err(AdminError::Storage(reason));
        }
    }
}

fn existing_hub(cluster: &Cluster, name: &HubName) -> Result<Arc<HubInfo>, AdminError> {
    let hub = cluster.hub(name.as_str());
    hub.ok_or_else(|| AdminError::Unknown(name.clone()))
}
