//! The way to whoever can answer: the leader of a partition, the coordinator of a group, the controller, or
//! anybody; found out, remembered, and found out again when it has changed.

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
use super::options::Options;
use super::pool::{ConnectionClass, Pool};
use super::retry::Retry;
use super::view::{Target, View};
use crate::codes::OK;
use crate::handlers::configs::settings::{self, MEANINGFUL};
use crate::handlers::text;

/// As often a hub may be unknown to a broker before it counts as deleted: word of a new one takes a moment
/// to reach all of them.
pub(super) const UNKNOWN_MAX: u32 = 4;

/// Kafka's number for a topic among what has settings.
pub(super) const TOPIC: i8 = 2;

pub(crate) struct Cluster {
    pub options: Arc<Options>,
    clock: Arc<dyn Clock>,
    /// Whoever appends may do so from a thread that has no runtime.
    pub runtime: Handle,
    pub pool: Pool,
    servers: Vec<Address>,
    view: RwLock<Arc<View>>,
    /// Held by the one who reads the catalogue.
    reading: tokio::sync::Mutex<()>,
    coordinators: Mutex<HashMap<Key, Address>>,
}

/// What has a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Group(String),
    Transaction(String),
}

/// Who is asked.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    Anybody,
    Controller,
    Leader(Target),
    Coordinator(Key),
    Broker(Address),
}

/// How something is asked.
#[derive(Clone, Debug)]
pub(crate) struct ClusterRequest {
    pub to: Destination,
    pub class: ConnectionClass,
    /// The broker may hold the answer back for so long; it has a connection of its own then.
    pub held: Option<Duration>,
    pub version_max: i16,
    /// Under which name, if not that of the options.
    pub client: Option<String>,
}

impl ClusterRequest {
    pub fn new(to: Destination) -> ClusterRequest {
        ClusterRequest {
            to,
            class: ConnectionClass::Control,
            held: None,
            version_max: i16::MAX,
            client: None,
        }
    }
}

impl Cluster {
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Result<Cluster, String> {
        let address = |server: &String| {
            Address::parse(server).ok_or_else(|| format!("`{server}` is not host:port"))
        };
        let servers: Vec<_> = options
            .servers
            .iter()
            .map(address)
            .collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err("no server was named".into());
        }
        let options = Arc::new(options);
        Ok(Cluster {
            pool: Pool::new(Arc::clone(&options)),
            options,
            clock,
            runtime: Handle::current(),
            servers,
            view: RwLock::default(),
            reading: tokio::sync::Mutex::default(),
            coordinators: Mutex::default(),
        })
    }

    pub fn now_ms(&self) -> i64 {
        self.clock.unix_millis()
    }

    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        let view = self.view();
        view.hubs.get(name).map(|topic| Arc::clone(&topic.info))
    }

    /// Reads the catalogue, unless somebody has since the view of this number.
    pub async fn refresh(&self, seen: u64) -> Result<(), CallError> {
        let _reading = self.reading.lock().await;
        let number = self.view().number;
        if number > seen {
            return Ok(());
        }
        let (_, connection) = self.anybody().await?;
        let request = |_| {
            MetadataRequest::default()
                .with_topics(None)
                .with_allow_auto_topic_creation(false)
        };
        let answer = connection.call(self.with_timeout(), request).await?;
        let settings = self.settings(&connection, &answer).await;
        let view = View::read(answer, &settings, number + 1);
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        Ok(())
    }

    /// Settings of all hubs; of those whose settings we may not see, or on a cluster that shows none, nothing.
    async fn settings(
        &self,
        connection: &Connection,
        answer: &MetadataResponse,
    ) -> BTreeMap<HubName, HubSettings> {
        let topics = answer.topics.iter().filter(|topic| topic.error_code == OK);
        let names = topics.filter_map(|topic| topic.name.clone());
        let resources: Vec<_> = names
            .map(|name| {
                DescribeConfigsResource::default()
                    .with_resource_type(TOPIC)
                    .with_resource_name(name.0)
                    .with_configuration_keys(Some(
                        MEANINGFUL.iter().map(|key| text(*key)).collect(),
                    ))
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
                let pairs = result.configs.iter();
                let pairs = pairs.map(|config| (config.name.as_str(), config.value.as_deref()));
                let known = pairs.fold(HubSettings::default(), |known, pair| {
                    // What a cluster has that we have no word for stays the default.
                    settings::read(known.clone(), std::iter::once(pair)).unwrap_or(known)
                });
                Some((HubName::new(&result.resource_name).ok()?, known))
            });
        read.flatten().collect()
    }

    fn with_timeout(&self) -> CallOptions<'static> {
        CallOptions::with_timeout(self.options.request_timeout)
    }

    /// Any broker that can be reached, and a connection to it.
    async fn anybody(&self) -> Result<(Address, Arc<Connection>), CallError> {
        let view = self.view();
        let mut trouble = None;
        for address in view.anybody().chain(&self.servers) {
            match self
                .pool
                .connection(address, ConnectionClass::Control)
                .await
            {
                Ok(connection) => return Ok((address.clone(), connection)),
                Err(error) => trouble = Some(error),
            }
        }
        Err(trouble.unwrap_or(CallError::Lost("there is no broker".into())))
    }

    /// Asks until there is an answer that is one, for as long as the options have patience. `read` says what
    /// the broker has against it, if it has.
    pub async fn ask<R: Request, T>(
        &self,
        ask: ClusterRequest,
        make: impl Fn(i16) -> R,
        read: impl Fn(R::Response) -> Result<T, BrokerError>,
    ) -> Result<T, Failure> {
        let mut retry = Retry::new(&self.options);
        let mut unknown = 0;
        loop {
            let seen = self.view().number;
            let failure = match self.ask_once(&ask, &make).await {
                Ok(answer) => match read(answer) {
                    Ok(done) => return Ok(done),
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
            self.look_again(&ask.to, seen).await;
        }
    }

    async fn ask_once<R: Request>(
        &self,
        ask: &ClusterRequest,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Failure> {
        let address = self.find(&ask.to).await?;
        let mut options = CallOptions {
            version_max: ask.version_max,
            client: ask.client.as_deref(),
            timeout: self.options.request_timeout,
        };
        let Some(held) = ask.held else {
            let connection = self.pool.connection(&address, ask.class).await;
            let called = connection.map_err(Failure::Call)?.call(options, make).await;
            return called.map_err(Failure::Call);
        };
        options.timeout += held;
        let connection = self.pool.exclusive(&address).await.map_err(Failure::Call)?;
        let called = connection.call(options, make).await;
        if called.is_ok() {
            self.pool.release(&address, connection);
        }
        called.map_err(Failure::Call)
    }

    /// Where to ask, as far as it is known or can be found out at once.
    pub async fn find(&self, to: &Destination) -> Result<Address, Failure> {
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
            Destination::Anybody => None,
        };
        match found {
            Some(address) => Ok(address.clone()),
            None => {
                let (address, _) = self.anybody().await.map_err(Failure::Call)?;
                Ok(address)
            }
        }
    }

    async fn coordinator(&self, key: &Key) -> Result<Address, Failure> {
        let known = {
            let coordinators = self.coordinators.lock();
            let coordinators = coordinators.unwrap_or_else(PoisonError::into_inner);
            coordinators.get(key).cloned()
        };
        if let Some(address) = known {
            return Ok(address);
        }
        let (_, connection) = self.anybody().await.map_err(Failure::Call)?;
        let (kind, name) = match key {
            Key::Group(name) => (0, name),
            Key::Transaction(name) => (1, name),
        };
        let request = |_| {
            FindCoordinatorRequest::default()
                .with_key(text(&**name))
                .with_key_type(kind)
        };
        let answer = connection.call(self.with_timeout(), request).await;
        let answer = answer.map_err(Failure::Call)?;
        ok_or(answer.error_code, answer.error_message).map_err(Failure::Broker)?;
        let address = Address::of(&answer.host, answer.port)
            .ok_or(Failure::Broker(Code::CoordinatorNotAvailable.into()))?;
        let mut coordinators = self
            .coordinators
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        coordinators.insert(key.clone(), address.clone());
        Ok(address)
    }

    /// Forgets who was asked in vain.
    pub async fn look_again(&self, to: &Destination, seen: u64) {
        match to {
            Destination::Coordinator(key) => {
                let mut coordinators = self
                    .coordinators
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                coordinators.remove(key);
            }
            Destination::Broker(_) => {}
            Destination::Anybody | Destination::Controller | Destination::Leader(_) => {
                if let Err(error) = self.refresh(seen).await {
                    tracing::debug!(%error, "the catalogue could not be read");
                }
            }
        }
    }
}
