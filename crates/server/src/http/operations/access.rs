//! Who may call an operation.

use crate::http::app::App;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::keys::Right;
use crate::text::percent_decode;
use crate::workflows;

use super::Variables;

/// Who may call an operation.
#[derive(Clone, Copy)]
pub(in crate::http) enum Access {
    /// Everybody, without a key.
    Public,
    /// A key with this right over this scope.
    Key(Right, Scope),
}

/// Where a key needs the right of an operation. Names are those of the first variable of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Scope {
    /// The node as a whole: the key is limited to no hub.
    Node,
    Hub,
    /// The records of a hub. Those of a hub of the node itself, such as the positions of all groups, need `manage`.
    HubRecords,
    Queue,
    /// The workflow: a key that is limited to hubs names the workflow's journal.
    Workflow,
    /// The dead-letter hub of a processor.
    DeadLetters,
    /// The hub or queue that the body names. Dispatch wants a key with this right over anything; the handler calls
    /// `ApiRequest::authorise` with the name.
    BodyName,
    /// Each item of the answer: the handler leaves out those that the key may not see.
    Items,
}

impl Access {
    pub(in crate::http) fn check(
        self,
        app: &App,
        caller: &Caller<'_>,
        variables: &Variables<'_>,
    ) -> Result<(), Error> {
        let Access::Key(right, scope) = self else {
            return Ok(());
        };
        match scope {
            Scope::Hub => caller.require(right, variables.first()),
            Scope::HubRecords => caller.require(right_to_read(right, variables), variables.first()),
            Scope::Queue => caller.require(right, variables.first()),
            Scope::Node => caller.require(right, None),
            Scope::Workflow => {
                let journal = variables.first().map(workflows::journal_name);
                caller.require(right, journal.as_deref())
            }
            Scope::DeadLetters => check_dead_letters(app, caller, right, variables),
            Scope::BodyName => caller.require_somewhere(right),
            Scope::Items => Ok(()),
        }
    }
}

fn right_to_read(right: Right, variables: &Variables<'_>) -> Right {
    match variables.first().is_some_and(|hub| hub.starts_with("__")) {
        true => Right::Manage,
        false => right,
    }
}

/// A processor that does not exist counts as the node, so that a key learns nothing of processors that are not its own.
fn check_dead_letters(
    app: &App,
    caller: &Caller<'_>,
    right: Right,
    variables: &Variables<'_>,
) -> Result<(), Error> {
    let processors = app.backend()?.processors.as_ref();
    let name = variables.first().map(percent_decode);
    let entry = processors
        .zip(name)
        .and_then(|(all, name)| all.entry(&name));
    caller.require(right, entry.map(|entry| entry.spec.dead.as_str()))
}

impl Scope {
    /// Completes "the right to listen ..".
    pub(in crate::http) fn describe(self) -> &'static str {
        match self {
            Scope::Node => "for the whole node",
            Scope::Hub => "for the hub",
            Scope::HubRecords => "for the hub (manage for hubs whose names begin with `__`)",
            Scope::Queue => "for the queue",
            Scope::Workflow => "for the workflow's journal, `__workflow.NAME`",
            Scope::DeadLetters => "for the dead-letter hub of the processor",
            Scope::BodyName => "for the name in the body",
            Scope::Items => "for each item; the answer leaves out the others",
        }
    }

    /// The name in the OpenAPI document.
    pub(in crate::http) fn name(self) -> &'static str {
        match self {
            Scope::Node => "node",
            Scope::Hub => "hub",
            Scope::HubRecords => "hub_records",
            Scope::Queue => "queue",
            Scope::Workflow => "workflow",
            Scope::DeadLetters => "dead_letters",
            Scope::BodyName => "body_name",
            Scope::Items => "items",
        }
    }
}
