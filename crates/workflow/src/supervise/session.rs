//! The session of one lock: the claimed instances, the calls and the reports in progress.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_log::BoxFuture;
use tokio::sync::mpsc;

use super::{
    Base64Bytes, ClaimResponse, FailedInstanceError, OutcomeReport, ReportResponse, ReportedEvent,
    Supervisor,
};
use crate::core::{Claim, Core, Effect, Input, Role, Round, SupervisorLock};
use crate::definition::Definition;
use crate::journal::{self, Record};
use crate::machine::Millis;
use crate::versions::Versions;
use crate::wait::{finished, sleep};

/// Size of one report; events are not split.
const REPORT_BYTES: usize = 512 << 10;

/// Instances claimed at once.
const CLAIM_MAX: usize = 500;

pub(crate) struct Session<'s> {
    supervisor: &'s Supervisor,
    core: Core,
    versions: Versions,
    lock: Option<SupervisorLock>,
    claiming: Option<BoxFuture<Result<ClaimResponse, FailedInstanceError>>>,
    reporting: Option<BoxFuture<Result<(Round, ReportResponse), FailedInstanceError>>>,
    sender: mpsc::UnboundedSender<Input>,
    inbox: mpsc::UnboundedReceiver<Input>,
}

impl Session<'_> {
    pub(crate) fn new(supervisor: &Supervisor) -> Session<'_> {
        let (sender, inbox) = mpsc::unbounded_channel();
        Session {
            supervisor,
            core: Core::new(Role::RemoteSupervisor, None, Random::from_os()),
            versions: Versions::default(),
            lock: None,
            claiming: None,
            reporting: None,
            sender,
            inbox,
        }
    }

    /// The lock, after the first claim.
    pub(crate) fn lock(&self) -> Option<SupervisorLock> {
        self.lock
    }

    /// Runs until a request to the dispatcher fails.
    pub(crate) async fn run(&mut self) -> FailedInstanceError {
        loop {
            self.claim();
            self.report();
            let timer = self.timer();
            let went = tokio::select! {
                offer = finished(&mut self.claiming) => offer.and_then(|offer| self.accept_claimed(offer)),
                taken = finished(&mut self.reporting) => taken.map(|(round, taken)| self.reported(round, &taken)),
                // Never closed: `self` has a sender.
                Some(input) = self.inbox.recv() => {
                    self.core.handle(self.now_ms(), input);
                    Ok(())
                }
                () = sleep(timer) => {
                    self.core.tick(self.now_ms());
                    Ok(())
                }
            };
            if let Err(error) = went {
                return error;
            }
        }
    }

    /// Claims more instances, or only extends the lock.
    fn claim(&mut self) {
        if self.claiming.is_some() {
            return;
        }
        let options = &self.supervisor.options;
        let capacity = options.instances_max.saturating_sub(self.core.count());
        let third = options.lock / 3;
        let claim = Claim {
            lock: self.lock,
            most: capacity.min(CLAIM_MAX),
            wait_ms: third.as_millis() as u64,
            lasts_ms: options.lock.as_millis() as u64,
        };
        let source = Arc::clone(&self.supervisor.source);
        self.claiming = Some(Box::pin(async move {
            if claim.most == 0 {
                tokio::time::sleep(third).await;
            }
            source.claim(claim).await
        }));
    }

    fn accept_claimed(&mut self, offer: ClaimResponse) -> Result<(), FailedInstanceError> {
        self.claiming = None;
        self.lock = Some(offer.lock);
        for (version, json) in &offer.definitions {
            let definition = Definition::from_json(json.get().as_bytes());
            let definition = definition.map_err(|_| {
                FailedInstanceError::Unreadable(format!("the definition {version}"))
            })?;
            self.versions.add(definition);
        }
        for offered in offer.instances {
            let read = journal::read(&offered.id, &offered.snapshot.0, &self.versions);
            let Ok(Record::Snapshot(instance)) = read else {
                return Err(FailedInstanceError::Unreadable(format!(
                    "instance {}",
                    offered.id
                )));
            };
            let now_ms = self.now_ms();
            self.core.handle(now_ms, Input::Failed { instance });
        }
        Ok(())
    }

    /// Reports new events. Their effects are performed when the report is durable.
    fn report(&mut self) {
        let Some(lock) = self.lock.filter(|_| self.reporting.is_none()) else {
            return;
        };
        let round = self.core.take_round();
        if round.is_empty() {
            return;
        }
        let reports = reports(lock, &round);
        let source = Arc::clone(&self.supervisor.source);
        self.reporting = Some(Box::pin(async move {
            let mut all = ReportResponse::default();
            for report in reports {
                let taken = source.report(report).await?;
                all.refused.extend(taken.refused);
            }
            Ok((round, all))
        }));
    }

    fn reported(&mut self, round: Round, taken: &ReportResponse) {
        self.reporting = None;
        let refused: BTreeSet<&str> = taken.refused.iter().map(String::as_str).collect();
        for id in &taken.refused {
            self.core.forget_instance(&Arc::from(id.as_str()));
        }
        for effect in round.effects {
            if let Effect::Call(call) = effect
                && !refused.contains(&*call.id)
            {
                let sender = self.sender.clone();
                // A session that has ended needs no outcome.
                call.submit(&self.supervisor.pools, move |input| {
                    drop(sender.send(input))
                });
            }
        }
    }

    fn timer(&self) -> Option<Duration> {
        let due_ms = self.core.next_timer()?;
        let wait = u64::try_from(due_ms - self.now_ms()).unwrap_or(0);
        Some(Duration::from_millis(wait))
    }

    fn now_ms(&self) -> Millis {
        self.supervisor.clock.unix_millis()
    }
}

/// Splits a round into reports of bounded size.
fn reports(lock: SupervisorLock, round: &Round) -> Vec<OutcomeReport> {
    let mut reports: Vec<OutcomeReport> = Vec::new();
    let mut bytes_left = 0;
    for (id, value) in round.records() {
        let bytes = id.len() + value.len();
        if bytes > bytes_left {
            let events = Vec::new();
            reports.push(OutcomeReport { lock, events });
            bytes_left = REPORT_BYTES;
        }
        bytes_left = bytes_left.saturating_sub(bytes);
        if let Some(report) = reports.last_mut() {
            report.events.push(ReportedEvent {
                id: id.to_string(),
                event: Base64Bytes(value.to_vec()),
            });
        }
    }
    reports
}
