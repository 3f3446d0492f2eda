//! The workflows of a node: what its settings say of them, and how they are started.

mod people;

use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_flow::GroupPositions;
use highwater_log::{Groups, Log, Membership};
use highwater_workflow::call::Functions;
use highwater_workflow::expr::Template;
use highwater_workflow::{
    Definition, Handle, Intake, JournalError, Options, People, Service, Supervision,
};

use crate::processors::notify::Ways;

/// A workflow of the settings.
#[derive(Clone, Debug)]
pub struct Workflow {
    pub definition: Definition,
    /// A hub whose records start instances.
    pub hub: Option<String>,
    /// Which id the instance of such a record has.
    pub id: Option<Template>,
    pub partitions: u32,
    pub running_max: usize,
    pub keep: Duration,
    pub supervision: Supervision,
}

/// Records of a partition that are being accepted at once: as many as share a sync when all is busy.
const INTAKE: usize = 512;

impl Workflow {
    /// Reads its journal; it runs when the service does.
    pub async fn open(
        self,
        log: &Arc<dyn Log>,
        groups: Arc<dyn Groups>,
        clock: &Arc<dyn Clock>,
        ways: Ways,
    ) -> Result<Service, JournalError> {
        let name = self.definition.name.clone();
        let options = Options {
            partitions: self.partitions,
            running_max: self.running_max,
            keep: self.keep,
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
        if ways.is_any() {
            let people: Arc<dyn People> = Arc::new(ways);
            service.tell(&people);
        }
        if let Some(hub) = self.hub {
            let member = Membership {
                group: format!("workflow.{name}"),
                generation: -1,
                member: String::new(),
                instance: None,
            };
            let positions = Arc::new(GroupPositions { groups, member });
            let intake = Intake {
                log: Arc::clone(log),
                dead: Intake::dead_letters(&**log, &name).await?,
                hub,
                id: self.id,
                positions,
                clock,
                concurrency: INTAKE,
            };
            service.take_from(intake);
        }
        Ok(service)
    }
}

/// The hub of a workflow's journal.
pub(crate) fn journal_name(workflow: &str) -> String {
    format!("__workflow.{workflow}")
}

/// The running workflows, by name.
#[derive(Clone, Default)]
pub struct Workflows(Vec<Handle>);

impl Workflows {
    pub fn add(&mut self, handle: Handle) {
        self.0.push(handle);
    }

    pub fn find(&self, name: &str) -> Option<&Handle> {
        self.0.iter().find(|handle| handle.name() == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Handle> {
        self.0.iter()
    }
}
