//! The life of one lock: what was lent under it, what is being done and what is being reported.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_log::Pending;
use tokio::sync::mpsc;

use super::{DeskError, Offer, Packed, Report, Reported, Supervisor, Taken};
use crate::call::{Job, Outcome};
use crate::core::{Claim, Core, Effect, Input, Lock, Role, Round};
use crate::definition::Definition;
use crate::journal::{self, Record};
use crate::machine::Millis;
use crate::versions::Versions;
use crate::wait::{finished, sleep};

/// Bytes of one report; an event is never cut.
const REPORT_BYTES: usize = 512 << 10;

/// Instances that are asked for at once.
const CLAIM_MAX: usize = 500;

pub struct Session<'s> {
    supervisor: &'s Supervisor,
    core: Core,
    versions: Versions,
    lock: Option<Lock>,
    claiming: Option<Pending<Result<Offer, DeskError>>>,
    reporting: Option<Pending<Result<(Round, Taken), DeskError>>>,
    door: mpsc::UnboundedSender<Input>,
    inbox: mpsc::UnboundedReceiver<Input>,
}

impl Session<'_> {
    pub fn new(supervisor: &Supervisor) -> Session<'_> {
        let (door, inbox) = mpsc::unbounded_channel();
        Session {
            supervisor,
            core: Core::new(Role::Agent, None, Random::from_os()),
            versions: Versions::default(),
            lock: None,
            claiming: None,
            reporting: None,
            door,
            inbox,
        }
    }

    /// None as long as there was none.
    pub fn lock(&self) -> Option<Lock> {
        self.lock
    }

    /// Works until something goes wrong between it and the keeper.
    pub async fn work(&mut self) -> DeskError {
        loop {
            self.claim();
            self.report();
            let timer = self.timer();
            let went = tokio::select! {
                offer = finished(&mut self.claiming) => offer.and_then(|offer| self.take(offer)),
                taken = finished(&mut self.reporting) => taken.map(|(round, taken)| self.reported(round, &taken)),
                // The other end is ours, so there is always one.
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

    /// Asks for more, or for as much time as what there is may take.
    fn claim(&mut self) {
        if self.claiming.is_some() {
            return;
        }
        let options = &self.supervisor.options;
        let room = options.held_max.saturating_sub(self.core.count());
        let third = options.lock / 3;
        let claim = Claim {
            lock: self.lock,
            most: room.min(CLAIM_MAX),
            wait_ms: third.as_millis() as u64,
            lasts_ms: options.lock.as_millis() as u64,
        };
        let desk = Arc::clone(&self.supervisor.desk);
        self.claiming = Some(Box::pin(async move {
            if claim.most == 0 {
                tokio::time::sleep(third).await;
            }
            desk.claim(claim).await
        }));
    }

    fn take(&mut self, offer: Offer) -> Result<(), DeskError> {
        self.claiming = None;
        self.lock = Some(offer.lock);
        for (version, json) in &offer.definitions {
            let definition = Definition::from_json(json.get().as_bytes());
            let definition = definition
                .map_err(|_| DeskError::Unreadable(format!("the definition {version}")))?;
            self.versions.add(definition);
        }
        for offered in offer.instances {
            let read = journal::read(&offered.id, &offered.snapshot.0, &self.versions);
            let Ok(Record::Snapshot(instance)) = read else {
                return Err(DeskError::Unreadable(format!("instance {}", offered.id)));
            };
            let now_ms = self.now_ms();
            self.core.handle(now_ms, Input::Failed { instance });
        }
        Ok(())
    }

    /// What has happened is reported; what follows from it is done when the report is safe.
    fn report(&mut self) {
        let Some(lock) = self.lock.filter(|_| self.reporting.is_none()) else {
            return;
        };
        let round = self.core.take_round();
        if round.is_empty() {
            return;
        }
        let reports = reports(lock, &round);
        let desk = Arc::clone(&self.supervisor.desk);
        self.reporting = Some(Box::pin(async move {
            let mut all = Taken::default();
            for report in reports {
                let taken = desk.report(report).await?;
                all.refused.extend(taken.refused);
            }
            Ok((round, all))
        }));
    }

    fn reported(&mut self, round: Round, taken: &Taken) {
        self.reporting = None;
        let refused: BTreeSet<&str> = taken.refused.iter().map(String::as_str).collect();
        for id in &taken.refused {
            self.core.let_go(&Arc::from(id.as_str()));
        }
        for effect in round.effects {
            if let Effect::Call {
                id,
                step,
                undo,
                work,
                timeout,
            } = effect
                && !refused.contains(&*id)
            {
                let door = self.door.clone();
                let done = move |outcome: Outcome| {
                    // A session that is over has forgotten it.
                    let _ = door.send(Input::Outcome {
                        id,
                        step,
                        undo,
                        outcome,
                    });
                };
                self.supervisor.lanes.submit(Job {
                    work,
                    timeout,
                    done: Box::new(done),
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
        (self.supervisor.clock.unix_nanos() / 1_000_000) as i64
    }
}

/// A round in pieces of a bounded size.
fn reports(lock: Lock, round: &Round) -> Vec<Report> {
    let mut reports: Vec<Report> = Vec::new();
    let mut room = 0;
    for (id, value) in round.records() {
        let bytes = id.len() + value.len();
        if bytes > room {
            let events = Vec::new();
            reports.push(Report { lock, events });
            room = REPORT_BYTES;
        }
        room = room.saturating_sub(bytes);
        if let Some(report) = reports.last_mut() {
            report.events.push(Reported {
                id: id.to_string(),
                event: Packed(value.to_vec()),
            });
        }
    }
    reports
}
