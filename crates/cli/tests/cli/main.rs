//! The `highwater` command from a user's view, and the documents that must agree with the code.

mod commands;
mod manual;
mod node;
mod pages;
mod specification;
