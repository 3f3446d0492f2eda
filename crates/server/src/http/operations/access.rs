//! Who may call an operation.

use highwater_access::{Principal, Resource, Right};

use crate::http::app::App;
use crate::http::auth;
use crate::http::error::Error;
use crate::text::percent_decode;

use super::Variables;

/// Who may call an operation.
#[derive(Clone, Copy)]
pub(in crate::http) enum Access {
    /// Every client, without a key.
    Public,
    /// A key with this right over this scope.
    Key(Right, Scope),
}

/// The resource that a key needs the right of an operation for. Names are those of the first variable of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Scope {
    /// The node as a whole: the key is limited to no hub.
    Node,
    Hub,
    Queue,
    Group,
    /// The workflow: a key that is limited to hubs names the workflow's journal.
    Workflow,
    /// The job or processor.
    Deployment,
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
        caller: &Principal,
        variables: &Variables<'_>,
    ) -> Result<(), Error> {
        let Access::Key(right, scope) = self else {
            return Ok(());
        };
        let name = variables.first().unwrap_or_default();
        let require = |on: Resource<'_>| auth::require(caller, right, on);
        match scope {
            Scope::Hub => require(Resource::Hub(name)),
            Scope::Queue => require(Resource::Queue(name)),
            Scope::Node => require(Resource::Node),
            Scope::Workflow => require(Resource::Workflow(name)),
            Scope::Group => require(Resource::Group(&percent_decode(name))),
            Scope::Deployment => require(Resource::Deployment(&percent_decode(name))),
            Scope::DeadLetters => check_dead_letters(app, caller, right, &percent_decode(name)),
            Scope::BodyName => require(Resource::AnyHub),
            Scope::Items => Ok(()),
        }
    }
}

/// A processor that does not exist counts as the node, so that a key learns nothing of processors that are not its own.
fn check_dead_letters(
    app: &App,
    caller: &Principal,
    right: Right,
    processor: &str,
) -> Result<(), Error> {
    let processors = app.backend()?.processors.as_ref();
    let entry = processors.and_then(|all| all.entry(processor));
    let hub = entry.map(|entry| Resource::Hub(entry.spec.dead.as_str()));
    auth::require(caller, right, hub.unwrap_or(Resource::Node))
}

impl Scope {
    /// Completes "the right to listen ..".
    pub(in crate::http) fn describe(self) -> &'static str {
        match self {
            Scope::Node => "for the whole node",
            Scope::Hub => "for the hub (manage for hubs whose names begin with `__`)",
            Scope::Group => "for the group",
            Scope::Deployment => "for the job or processor",
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
            Scope::Group => "group",
            Scope::Deployment => "deployment",
            Scope::Queue => "queue",
            Scope::Workflow => "workflow",
            Scope::DeadLetters => "dead_letters",
            Scope::BodyName => "body_name",
            Scope::Items => "items",
        }
    }
}
