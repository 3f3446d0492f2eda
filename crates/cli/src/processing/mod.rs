//! `highwater processor`, `circuit` and `dlq`: event processing of a running node, over HTTP.

mod circuits;
mod dead_letters;
mod processors;

pub(crate) use circuits::Circuit;
pub(crate) use dead_letters::Dlq;
pub(crate) use processors::Processor;
