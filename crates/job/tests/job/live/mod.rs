//! Live jobs over a log in memory: results that nothing disturbs, and time that moves without events.

mod faults;
mod files;
mod functions;
mod growth;
mod recorder;
mod refresh;
mod repeatable;
mod silence;
mod starts;
mod world;
