//! The pages of the console: pure functions from plain view structs to HTML, and the assets that the pages load.
//!
//! The server makes a view struct out of the node's services and asks this crate for the page; while the page is open,
//! the server renders the same view again and sends the panels that changed. So a screen is one function, and needs
//! no script of its own to stay current. Nothing here knows another crate of the workspace: `examples/preview.rs`
//! shows every screen with made-up data.
//!
//! A new screen is a file with its view struct and `impl From<&TheView> for View`: a heading and panels, made of
//! the parts in [`parts`]. Actions are buttons and forms with `data-call="POST /api/.."` (`parts::action`), which
//! `assets/shell.js` sends with the session's token. Neither inline script nor inline style works: the content
//! security policy forbids both.

mod assets;
mod bulk;
pub mod circuit;
pub mod cluster;
pub mod dead_letter;
pub mod dead_letter_list;
pub mod format;
mod highlight;
pub mod hub;
pub mod hub_list;
pub mod job;
pub mod job_list;
mod json;
mod layout;
pub mod login;
pub mod message;
pub mod overview;
pub mod parts;
pub mod payload;
pub mod plan;
mod playground;
pub mod processor;
pub mod processor_list;
pub mod queue;
pub mod queue_list;
pub mod workflow;
pub mod workflow_list;

pub use assets::{Asset, asset, version};
pub use layout::{Attention, CONTENT_SECURITY_POLICY, NavCounts, Screen, Shell, View, page};
pub use playground::playground;
