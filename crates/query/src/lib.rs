//! SAQL, the query language of Highwater: from text to a bound plan.
//!
//! A query passes through lexer, parser and binder. The parser knows the whole language, the binder knows its rules and
//! the supported subset; both report a [`Diagnostic`] with a position, a stable code and, where possible, a fix. The
//! result is a [`plan::Plan`]: nodes over numbered columns, without names, aliases or steps, for the engine to execute.
//!
//! This crate knows no data, no columns in memory and no clock. It never panics on any text.
//!
//! ```
//! use highwater_query::{Catalog, compile, explain};
//!
//! let query = "SELECT device, AVG(temperature) AS mean
//!              INTO alerts FROM input TIMESTAMP BY time
//!              GROUP BY device, TumblingWindow(minute, 1) HAVING mean > 90";
//! let compiled = compile(query, &Catalog::streams(["input"])).expect("the query is fine");
//! assert!(explain(&compiled.plan).starts_with("output alerts"));
//!
//! let query = "SELECT device FROM inptu";
//! let errors = compile(query, &Catalog::streams(["input"])).expect_err("there is no such input");
//! assert_eq!(
//!     errors[0].render(query, "query.saql"),
//!     "error[HW1201]: there is no input or step `inptu`
//!  --> query.saql:1:20
//!   |
//! 1 | SELECT device FROM inptu
//!   |                    ^^^^^
//!   = help: did you mean `input`? there is only `input`
//! "
//! );
//! ```

mod ast;
mod bind;
mod diagnostic;
mod explain;
mod fold;
pub mod functions;
mod lexer;
mod parser;
pub mod plan;
mod print;
mod span;
mod visit;

pub use bind::{Catalog, CatalogInput, CompiledQuery, compile};
pub use diagnostic::{Diagnostic, Severity, TextPosition, code};
pub use explain::{PlanStep, explain, lookback, steps};
pub use fold::upper;
pub use span::Span;
