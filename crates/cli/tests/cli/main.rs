//! The `highwater` command as a user meets it, and the documents that must agree with the code.

mod commands;
mod manual;
mod node;
mod pages;
mod specification;
