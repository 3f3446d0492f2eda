//! SAQL: from text to a bound plan.

mod ast;
mod bind;
mod diagnostic;
mod explain;
mod lexer;
mod nearest;
mod parser;
pub mod plan;
mod print;
mod span;
mod visit;

pub use bind::{Catalog, CatalogInput, Compiled, compile};
pub use diagnostic::{Diagnostic, Severity, code};
pub use explain::{explain, lookback};
pub use nearest::nearest;
pub use span::Span;
