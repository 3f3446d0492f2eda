//! The service pools of a workflow.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_env::random::Random;
use highwater_env::{Clock, EgressPolicy};
use highwater_retry::RetryDecision;
use tokio::sync::oneshot;

use super::service_pool::{HttpCall, HttpCallRequest, ServicePool};
use super::{CallError, CallOutcome, CallRequest, Functions, PreparedCall};
use crate::definition::{Retry, Service};

const NOTICE_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes calls through one pool per service. Clones share the pools.
#[derive(Clone)]
pub struct ServicePools {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    functions: Functions,
    egress: EgressPolicy,
    /// Few, and searched linearly: equal services of different versions share a pool.
    pools: Mutex<Vec<(Service, Arc<ServicePool>)>>,
}

impl ServicePools {
    pub fn new(clock: Arc<dyn Clock>, functions: Functions, egress: EgressPolicy) -> ServicePools {
        ServicePools {
            shared: Arc::new(Shared {
                clock,
                functions,
                egress,
                pools: Mutex::default(),
            }),
        }
    }

    pub fn submit(&self, request: CallRequest) {
        let CallRequest {
            work,
            timeout,
            done,
        } = request;
        match work {
            PreparedCall::Http {
                definition,
                service,
                of,
                request,
            } => self
                .pool(&definition.services[service])
                .submit(HttpCallRequest {
                    call: HttpCall {
                        definition,
                        of,
                        request,
                    },
                    timeout,
                    done,
                }),
            PreparedCall::Function { name, call } => {
                let pools = self.clone();
                tokio::spawn(async move {
                    let begun_ms = pools.now_ms();
                    let result = match pools.shared.functions.call(&name, call) {
                        Some(work) => {
                            tokio::time::timeout(timeout, work)
                                .await
                                .unwrap_or_else(|_| {
                                    let reason = format!("no result within {:?}", timeout);
                                    Err(CallError::transient(reason).in_doubt())
                                })
                        }
                        None => Err(CallError::transient(format!(
                            "there is no function `{name}` in this process"
                        ))),
                    };
                    let ended_ms = pools.now_ms();
                    done(CallOutcome {
                        begun_ms,
                        ended_ms,
                        result,
                    });
                });
            }
        }
    }

    /// Sends a notice, with retries. If all fail, it is logged and dropped.
    pub async fn notify(&self, id: &str, notice: PreparedCall) {
        let PreparedCall::Http {
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
            let (reply, outcome) = oneshot::channel();
            self.pool(&definition.services[service])
                .submit(HttpCallRequest {
                    call: HttpCall {
                        definition: Arc::clone(&definition),
                        of: None,
                        request: request.clone(),
                    },
                    timeout: NOTICE_TIMEOUT,
                    done: Box::new(move |outcome| drop(reply.send(outcome.result))),
                });
            let Ok(Err(error)) = outcome.await else {
                return;
            };
            tries += 1;
            match policy.next(tries, Duration::ZERO, None, random.next_u64()) {
                RetryDecision::After(delay) => tokio::time::sleep(delay).await,
                RetryDecision::GiveUp(_) => {
                    tracing::warn!(id, %error, "a notice of an instance could not be sent");
                    return;
                }
            }
        }
    }

    /// Closes idle connections and makes no more calls.
    pub fn stop(&self) {
        let pools = &self.shared.pools;
        let mut pools = pools.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, pool) in pools.drain(..) {
            pool.stop();
        }
    }

    fn pool(&self, service: &Service) -> Arc<ServicePool> {
        let pools = &self.shared.pools;
        let mut pools = pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pool)) = pools.iter().find(|(known, _)| known == service) {
            return Arc::clone(pool);
        }
        let (clock, egress) = (self.shared.clock.clone(), self.shared.egress.clone());
        let pool = ServicePool::new(service.clone(), clock, egress);
        pools.push((service.clone(), Arc::clone(&pool)));
        pool
    }

    fn now_ms(&self) -> i64 {
        self.shared.clock.unix_millis()
    }
}
