//! The workflows of a node: from the settings to running services.

mod parked_notification;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use highwater_env::{Clock, EgressPolicy};
use highwater_flow::GroupPositions;
use highwater_log::{GroupCoordinator, Log, Membership};
use highwater_workflow::Template;
use highwater_workflow::call::Functions;
use highwater_workflow::{
    Definition, Handle, HubIntake, JournalError, OperatorNotifier, Options, Service, Supervision,
};

use crate::processors::notify::Notifier;

/// A workflow of the settings.
#[derive(Clone, Debug)]
pub struct Workflow {
    pub definition: Definition,
    /// A hub whose records start instances.
    pub hub: Option<String>,
    /// The id of an instance that such a record starts.
    pub id: Option<Template>,
    pub partitions: u32,
    pub running_max: usize,
    pub input_bytes_max: usize,
    pub keep: Duration,
    pub supervision: Supervision,
}

/// Records of a partition that start instances at the same time: as many as share a sync under load.
const INTAKE_CONCURRENCY: usize = 512;

impl Workflow {
    /// Opens the journal. The workflow runs when the service does.
    pub(crate) async fn open(
        self,
        log: &Arc<dyn Log>,
        groups: Arc<dyn GroupCoordinator>,
        clock: &Arc<dyn Clock>,
        egress: EgressPolicy,
        notifier: Notifier,
    ) -> Result<Service, JournalError> {
        let name = self.definition.name.clone();
        let options = Options {
            partitions: self.partitions,
            running_max: self.running_max,
            input_bytes_max: self.input_bytes_max,
            keep: self.keep,
            egress,
            ..Options::default()
        };
        let (clock, functions) = (Arc::clone(clock), Functions::new());
        let mut service = Service::open(
            log,
            Arc::clone(&clock),
            self.definition,
            functions,
            options,
            self.supervision,
        )
        .await?;
        if notifier.is_configured() {
            let notifier: Arc<dyn OperatorNotifier> = Arc::new(notifier);
            service.set_notifier(&notifier);
        }
        if let Some(hub) = self.hub {
            let member = Membership {
                group: format!("workflow.{name}"),
                generation: -1,
                member: String::new(),
                instance: None,
            };
            let positions = Arc::new(GroupPositions { groups, member });
            let intake = HubIntake {
                log: Arc::clone(log),
                dead: HubIntake::dead_letters(&**log, &name).await?,
                hub,
                id: self.id,
                positions,
                clock,
                concurrency: INTAKE_CONCURRENCY,
            };
            service.add_intake(intake);
        }
        Ok(service)
    }
}

/// The workflows that run on this node, by name. Clones refer to the same ones.
#[derive(Clone, Default)]
pub struct Workflows(Arc<RwLock<BTreeMap<String, Handle>>>);

impl Workflows {
    /// In place of one of the same name.
    pub fn add(&self, handle: Handle) {
        self.write().insert(handle.name().to_owned(), handle);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.write().remove(name);
    }

    pub fn find(&self, name: &str) -> Option<Handle> {
        self.read().get(name).cloned()
    }

    pub fn list(&self) -> Vec<Handle> {
        self.read().values().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Handle>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Handle>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
