//! Routes requests to the broker that is responsible: the leader of a partition, the coordinator of a group, the
//! controller, or any. Addresses are cached, and looked up again when they have changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::{HubInfo, HubName, HubSettings};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{
    DescribeConfigsRequest, FindCoordinatorRequest, MetadataRequest, MetadataResponse,
};
use kafka_protocol::protocol::Request;
use tokio::runtime::Handle;

use super::connection::{CallError, CallOptions, Connection};
use super::dial::Address;
use super::errors::{BrokerError, Failure, is_retriable, is_unknown, ok_or};
use super::lock;
use super::options::{Options, Profile};
use super::pool::{ConnectionClass, Pool};
use super::retry::Retry;
use super::view::{Target, View};
use crate::codes::OK;
use crate::handlers::configs::settings;
use crate::handlers::text;

/// How often a hub may be unknown to a broker before it counts as deleted: brokers learn of a new hub with a delay.
pub(super) const UNKNOWN_MAX: u32 = 4;

/// Kafka's resource type of topics.
pub(super) const TOPIC: i8 = 2;

pub(crate) struct Cluster {
    pub options: Arc<Options>,
    clock: Arc<dyn Clock>,
    /// Appends may come from a thread without a runtime.
    pub runtime: Handle,
    pub pool: Pool,
    servers: Vec<Address>,
    view: RwLock<Arc<View>>,
    /// Held while the catalogue is read.
    refreshing: tokio::sync::Mutex<()>,
    coordinators: Mutex<HashMap<CoordinatorKey, Address>>,
}

/// The resource of a coordinator, by its name in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CoordinatorKey {
    Group(String),
    Transaction(String),
}

/// The broker that a request goes to.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    AnyBroker,
    Controller,
    Leader(Target),
    Coordinator(CoordinatorKey),
    Broker(Address),
}

/// Where and how a request is sent.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub to: Destination,
    pub class: ConnectionClass,
    /// How long the broker may hold the response. Such a request uses an exclusive connection.
    pub hold_max: Option<Duration>,
    pub version_max: i16,
    /// The client id, if not that of the options.
    pub client: Option<String>,
}

impl Route {
    pub(super) fn new(to: Destination) -> Route {
        Route {
            to,
            class: ConnectionClass::Control,
            hold_max: None,
            version_max: i16::MAX,
            client: None,
        }
    }
}

impl Cluster {
    pub(super) fn new(options: Options, clock: Arc<dyn Clock>) -> Result<Cluster, String> {
        let address = |server: &String| {
            Address::parse(server).ok_or_else(|| format!("`{server}` is not host:port"))
        };
        let servers: Vec<_> = options
            .servers
            .iter()
            .map(address)
            .collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err("no server is configured".into());
        }
        let options = Arc::new(options);
        Ok(Cluster {
            pool: Pool::new(Arc::clone(&options)),
            options,
            clock,
            runtime: Handle::current(),
            servers,
            view: RwLock::default(),
            refreshing: tokio::sync::Mutex::default(),
            coordinators: Mutex::default(),
        })
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.unix_millis()
    }

    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        let view = self.view();
        view.hubs.get(name).map(|topic| Arc::clone(&topic.info))
    }

    /// Reads the catalogue, unless there is a newer view than this number.
    pub(super) async fn refresh(&self, seen: u64) -> Result<(), CallError> {
        let _refreshing = self.refreshing.lock().await;
        let number = self.view().number;
        if number > seen {
            return Ok(());
        }
        let (_, connection) = self.any_broker().await?;
        let request = |_| {
            MetadataRequest::default()
                .with_topics(None)
                .with_allow_auto_topic_creation(false)
        };
        let response = connection.call(self.with_timeout(), request).await?;
        let settings = self.settings(&connection, &response).await;
        let view = View::read(response, &settings, &self.options.names, number + 1);
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        Ok(())
    }

    /// The settings of all hubs, except those that the client may not read or the cluster does not return.
    async fn settings(
        &self,
        connection: &Connection,
        response: &MetadataResponse,
    ) -> BTreeMap<HubName, HubSettings> {
        if self.options.profile == Profile::EventHubs {
            return BTreeMap::new();
        }
        let topics = response
            .topics
            .iter()
            .filter(|topic| topic.error_code == OK);
        let names = topics.filter_map(|topic| topic.name.clone());
        let own = names.filter(|name| self.options.names.hub(name).is_some());
        let resources: Vec<_> = own
            .map(|name| {
                DescribeConfigsResource::default()
                    .with_resource_type(TOPIC)
                    .with_resource_name(name.0)
                    .with_configuration_keys(Some(settings::effective().map(text).collect()))
            })
            .collect();
        if resources.is_empty() {
            return BTreeMap::new();
        }
        let request = |_| DescribeConfigsRequest::default().with_resources(resources);
        let Ok(described) = connection.call(self.with_timeout(), request).await else {
            return BTreeMap::new();
        };
        let results = described.results.into_iter();
        let read = results
            .filter(|result| result.error_code == OK)
            .map(|result| {
                let initial = HubSettings::default();
                // A default of the cluster is not a setting of the hub, unless it may differ from ours.
                let configs = result.configs.iter().filter(|config| {
                    config.config_source == settings::source::TOPIC
                        || settings::ALWAYS_EXPLICIT.contains(&config.name.as_str())
                });
                let pairs = configs.map(|config| (config.name.as_str(), config.value.as_deref()));
                let known = pairs.fold(initial.clone(), |known, pair| {
                    let changed = settings::read(known.clone(), &initial, std::iter::once(pair));
                    // A setting that is unknown here keeps its default.
                    changed.unwrap_or(known)
                });
                Some((self.options.names.hub(&result.resource_name)?, known))
            });
        read.flatten().collect()
    }

    fn with_timeout(&self) -> CallOptions<'static> {
        CallOptions::with_timeout(self.options.request_timeout)
    }

    /// A connection to any broker, and its address.
    async fn any_broker(&self) -> Result<(Address, Arc<Connection>), CallError> {
        let view = self.view();
        let mut failed = None;
        for address in view.addresses().chain(&self.servers) {
            match self
                .pool
                .connection(address, ConnectionClass::Control)
                .await
            {
                Ok(connection) => return Ok((address.clone(), connection)),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(CallError::Lost("there is no broker".into())))
    }

    /// Sends a request and retries within the patience of the options. `read` returns the error of a response.
    pub(super) async fn call<R: Request, T>(
        &self,
        route: Route,
        make: impl Fn(i16) -> R,
        read: impl Fn(R::Response) -> Result<T, BrokerError>,
    ) -> Result<T, Failure> {
        let mut retry = Retry::new(&self.options);
        let mut unknown = 0;
        loop {
            let seen = self.view().number;
            let failure = match self.call_once(&route, &make).await {
                Ok(response) => match read(response) {
                    Ok(value) => return Ok(value),
                    Err(error) => Failure::Broker(error),
                },
                Err(failure) => failure,
            };
            unknown += u32::from(failure.code().is_some_and(is_unknown));
            let is_retriable = match &failure {
                Failure::Call(CallError::Lost(_)) => true,
                Failure::Call(CallError::Refused(_)) => false,
                Failure::Broker(error) => is_retriable(error.code) && unknown < UNKNOWN_MAX,
            };
            if !is_retriable || !retry.pause().await {
                return Err(failure);
            }
            self.invalidate(&route.to, seen).await;
        }
    }

    async fn call_once<R: Request>(
        &self,
        route: &Route,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Failure> {
        let address = self.find(&route.to).await?;
        let mut options = CallOptions {
            version_max: route.version_max,
            client: route.client.as_deref(),
            timeout: self.options.request_timeout,
        };
        let Some(hold_max) = route.hold_max else {
            let connection = self.pool.connection(&address, route.class).await;
            let called = connection.map_err(Failure::Call)?.call(options, make).await;
            return called.map_err(Failure::Call);
        };
        options.timeout += hold_max;
        let connection = self.pool.exclusive(&address).await.map_err(Failure::Call)?;
        let called = connection.call(options, make).await;
        if called.is_ok() {
            self.pool.release(&address, connection);
        }
        called.map_err(Failure::Call)
    }

    /// The address of a destination.
    pub(super) async fn find(&self, to: &Destination) -> Result<Address, Failure> {
        let view = self.view();
        let found = match to {
            Destination::Broker(address) => Some(address),
            Destination::Controller => view.controller(),
            Destination::Leader(target) => {
                let leader = view.leader(target).ok_or(Code::UnknownTopicOrPartition);
                let leader = leader.and_then(|leader| leader.ok_or(Code::LeaderNotAvailable));
                return leader.cloned().map_err(|code| Failure::Broker(code.into()));
            }
            Destination::Coordinator(key) => return self.coordinator(key).await,
            Destination::AnyBroker => None,
        };
        match found {
            Some(address) => Ok(address.clone()),
            None => {
                let (address, _) = self.any_broker().await.map_err(Failure::Call)?;
                Ok(address)
            }
        }
    }

    async fn coordinator(&self, key: &CoordinatorKey) -> Result<Address, Failure> {
        let cached = lock(&self.coordinators).get(key).cloned();
        if let Some(address) = cached {
            return Ok(address);
        }
        let (_, connection) = self.any_broker().await.map_err(Failure::Call)?;
        let (kind, name) = match key {
            CoordinatorKey::Group(name) => (0, self.options.names.group(name).0),
            CoordinatorKey::Transaction(name) => (1, self.options.names.transaction(name).0),
        };
        let request = |_| {
            FindCoordinatorRequest::default()
                .with_key(name)
                .with_key_type(kind)
        };
        let response = connection.call(self.with_timeout(), request).await;
        let response = response.map_err(Failure::Call)?;
        ok_or(response.error_code, response.error_message).map_err(Failure::Broker)?;
        let address = Address::of(&response.host, response.port)
            .ok_or(Failure::Broker(Code::CoordinatorNotAvailable.into()))?;
        lock(&self.coordinators).insert(key.clone(), address.clone());
        Ok(address)
    }

    /// Drops the cached address of a destination that failed.
    pub(super) async fn invalidate(&self, to: &Destination, seen: u64) {
        match to {
            Destination::Coordinator(key) => {
                lock(&self.coordinators).remove(key);
            }
            Destination::Broker(_) => {}
            Destination::AnyBroker | Destination::Controller | Destination::Leader(_) => {
                if let Err(error) = self.refresh(seen).await {
                    tracing::debug!(%error, "cannot read the catalogue");
                }
            }
        }
    }
}
