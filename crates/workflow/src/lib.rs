//! Transactions across services (sagas) that are never lost and never left half done.
//!
//! A [`Definition`] lists steps in order, each an HTTP call or a function, and how each is undone. A
//! *scheduler* runs the steps of an instance in order and journals every outcome before the next step begins.
//! When a step fails for good, a separate *supervisor* undoes the completed steps from the last to the first
//! (compensation). An instance that cannot be undone is parked for an operator. All state is a replay of
//! records on a log (`journal`), folded by a pure state machine (`machine`).
//!
//! ```
//! use std::sync::Arc;
//! use highwater_env::RealClock;
//! use highwater_log::{Log, MemoryLog};
//! use highwater_workflow::call::{CallError, Functions};
//! use highwater_workflow::definition::{Builder, StepBuilder};
//! use highwater_workflow::{Options, Service, StartOutcome, Supervision};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let order = Builder::new("order")
//!     .step(StepBuilder::function("reserve", "reserve").undo_function("give-back"))
//!     .step(StepBuilder::function("pay", "pay"))
//!     .build()?;
//! // Steps are mostly HTTP calls: StepBuilder::call("pay", "PUT", "http://bank/payments/{{id}}").
//! let functions = Functions::new()
//!     .with("reserve", async |call| Ok(json!({"reserved for": *call.id})))
//!     .with("give-back", async |_| Ok(json!(null)))
//!     .with("pay", async |_| Err(CallError::refused("no money")));
//!
//! let log: Arc<dyn Log> = Arc::new(MemoryLog::new(|| 0));
//! let (clock, options) = (Arc::new(RealClock::new()), Options::default());
//! let here = Supervision::Here;
//! let service = Service::open(&log, clock, order, functions, options, here).await?;
//! let workflow = service.handle();
//! tokio::spawn(service.run(std::future::pending()));
//!
//! assert_eq!(workflow.start("o-1", b"{}").await?, StartOutcome::New);
//! while workflow.ended() == 0 {
//!     tokio::task::yield_now().await;
//! }
//! let order = workflow.show("o-1").await?.ok_or("it is in the history")?;
//! assert_eq!((order.state.as_str(), order.reason.as_deref()), ("refused", Some("no money")));
//! assert_eq!(order.steps[0].undo.as_ref().map(|undo| undo.state.as_str()), Some("undone"));
//! # Ok(())
//! # }
//! ```
//!
//! - `expr` and [`definition`]: what a workflow is.
//! - `machine`: one instance as a state machine: events in, tasks out. No clock, no I/O.
//! - `core`: many instances: inputs in, records and effects out. Effects are performed after their records are
//!   durable. `core/step_retry.rs` decides whether a failed step is retried. No I/O.
//! - `service`: the tasks around a core, and [`call`], which makes the calls; [`supervise`], a supervisor in a
//!   process of its own.
//! - `journal`, `history`, `versions`: the records on the log.

pub mod call;
mod core;
pub mod definition;
mod expr;
mod history;
mod journal;
mod machine;
mod service;
pub mod supervise;
mod timeline;
mod versions;
mod wait;

pub use self::core::{OperatorCommand, OperatorCommandError, StartOutcome};
pub use definition::Definition;
pub use expr::Template;
pub use journal::JournalError;
pub use machine::View;
pub use service::{
    Handle, HubIntake, InstancePage, InstanceSummary, ListCursor, ListFilter, LocalFailedInstances,
    OperatorNotifier, Options, STATES, STATES_IN_PROGRESS, Service, StartError, Supervision,
};
