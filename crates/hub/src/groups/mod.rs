//! groups
pub(crate) mod machine;
use std::time::Duration;
#[derive(Clone, Debug)]
pub struct Options {
    pub members_max: usize,
    pub session_min: Duration,
    pub session_max: Duration,
    pub initial_delay: Duration,
}
