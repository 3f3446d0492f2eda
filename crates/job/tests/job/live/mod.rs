//! Live jobs over a log in memory: results that nothing disturbs, and time that moves without events.

mod cluster;
mod created;
mod faults;
mod files;
mod functions;
mod golden;
mod growth;
mod instances;
mod kafka;
mod properties;
mod recorder;
mod refresh;
mod repeatable;
mod shared_references;
mod silence;
mod starts;
mod store_outages;
mod world;
