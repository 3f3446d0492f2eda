//! Rules one by one, then laws over random expressions and chunks.

mod build;
mod generate;
mod laws;
mod oracle;
mod rules;
