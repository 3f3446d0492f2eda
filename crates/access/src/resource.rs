//! The resources that rights apply to.

use std::fmt;

/// The journal of workflow `w` is the hub `__workflow.w`.
pub(crate) const WORKFLOW_JOURNAL_PREFIX: &str = "__workflow.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The node as a whole.
    Node,
    Hub(&'a str),
    /// A hub that the client creates.
    NewHub(&'a str),
    /// Any hub.
    AnyHub,
    Queue(&'a str),
    Group(&'a str),
    TransactionalId(&'a str),
    /// The instances of a workflow.
    Workflow(&'a str),
    /// A job or processor.
    Deployment(&'a str),
}

impl<'a> Resource<'a> {
    /// The name in the audit log; empty for the node as a whole.
    pub fn name(&self) -> &'a str {
        match self {
            Resource::Node | Resource::AnyHub => "",
            Resource::Hub(name)
            | Resource::NewHub(name)
            | Resource::Queue(name)
            | Resource::Group(name)
            | Resource::TransactionalId(name)
            | Resource::Workflow(name)
            | Resource::Deployment(name) => name,
        }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Node => write!(out, "this node"),
            Resource::Hub(name) | Resource::NewHub(name) => write!(out, "hub `{name}`"),
            Resource::AnyHub => write!(out, "any hub"),
            Resource::Queue(name) => write!(out, "queue `{name}`"),
            Resource::Group(name) => write!(out, "group `{name}`"),
            Resource::TransactionalId(name) => write!(out, "transactional id `{name}`"),
            Resource::Workflow(name) => write!(out, "workflow `{name}`"),
            Resource::Deployment(name) => write!(out, "job or processor `{name}`"),
        }
    }
}
