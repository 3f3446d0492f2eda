//! All lanes of a workflow.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_flow::retry;
use tokio::sync::oneshot;

use super::lane::{HttpJob, Lane, Question};
use super::{CallError, Functions, Job, Outcome, Prepared};
use crate::definition::{Retry, Service};

const NOTICE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where calls are made. Clones are the same lanes.
#[derive(Clone)]
pub struct Lanes {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    functions: Functions,
    /// Few, and found by comparing: services of different versions share a lane if they are the same.
    lanes: Mutex<Vec<(Service, Arc<Lane>)>>,
}

impl Lanes {
    pub fn new(clock: Arc<dyn Clock>, functions: Functions) -> Lanes {
        Lanes {
            shared: Arc::new(Shared {
                clock,
                functions,
                lanes: Mutex::default(),
            }),
        }
    }

    pub fn submit(&self, job: Job) {
        match job.work {
            Prepared::Http {
                definition,
                service,
                of,
                request,
            } => self.lane(&definition.services[service]).submit(HttpJob {
                question: Question {
                    definition,
                    of,
                    request,
                },
                timeout: job.timeout,
                done: job.done,
            }),
            Prepared::Function { name, call } => {
                let lanes = self.clone();
                tokio::spawn(async move {
                    let begun_ms = lanes.now_ms();
                    let result = match lanes.shared.functions.call(&name, call) {
                        Some(work) => tokio::time::timeout(job.timeout, work)
                            .await
                            .unwrap_or_else(|_| {
                                let reason = format!("no result within {:?}", job.timeout);
                                Err(CallError::transient(reason).in_doubt())
                            }),
                        None => Err(CallError::transient(format!(
                            "there is no function `{name}` in this process"
                        ))),
                    };
                    let ended_ms = lanes.now_ms();
                    (job.done)(Outcome {
                        begun_ms,
                        ended_ms,
                        result,
                    });
                });
            }
        }
    }

    /// Sends a notice, several times if need be; one that cannot be sent is reported and let go.
    pub async fn tell(&self, id: &str, notice: Prepared) {
        let Prepared::Http {
            definition,
            service,
            request,
            ..
        } = notice
        else {
            return;
        };
        let policy = Retry::STEP.policy();
        let mut random = Random::from_os();
        let mut tries = 0;
        loop {
            let (told, outcome) = oneshot::channel();
            self.lane(&definition.services[service]).submit(HttpJob {
                question: Question {
                    definition: Arc::clone(&definition),
                    of: None,
                    request: request.clone(),
                },
                timeout: NOTICE_TIMEOUT,
                done: Box::new(move |outcome| drop(told.send(outcome.result))),
            });
            let Ok(Err(error)) = outcome.await else {
                return;
            };
            tries += 1;
            match policy.next(tries, Duration::ZERO, None, random.next_u64()) {
                retry::Retry::After(delay) => tokio::time::sleep(delay).await,
                retry::Retry::GiveUp(_) => {
                    tracing::warn!(id, %error, "nobody could be told of an instance");
                    return;
                }
            }
        }
    }

    /// Connections that are idle are closed, and no more calls are made.
    pub fn stop(&self) {
        let lanes = &self.shared.lanes;
        let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, lane) in lanes.drain(..) {
            lane.stop();
        }
    }

    fn lane(&self, service: &Service) -> Arc<Lane> {
        let lanes = &self.shared.lanes;
        let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, lane)) = lanes.iter().find(|(known, _)| known == service) {
            return Arc::clone(lane);
        }
        let lane = Lane::new(service.clone(), Arc::clone(&self.shared.clock));
        lanes.push((service.clone(), Arc::clone(&lane)));
        lane
    }

    fn now_ms(&self) -> i64 {
        (self.shared.clock.unix_nanos() / 1_000_000) as i64
    }
}
