//! The desk of a partition as those see it who are in the same process as the keeper.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use highwater_log::Pending;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::shard::{Door, Message};
use crate::core::{Claim, Input, Lent, LockLost};
use crate::definition::Version;
use crate::journal::{self, Record};
use crate::machine::Event;
use crate::supervise::{
    Desk, DeskError, Farewell, Offer, Offered, Packed, Report, Reported, Taken,
};
use crate::versions::Versions;

/// Where failed instances are handed out, and outcomes taken in.
#[derive(Clone)]
pub struct Counter {
    pub(super) door: Door,
    pub(super) versions: Versions,
}

impl Desk for Counter {
    fn claim(&self, claim: Claim) -> Pending<Result<Offer, DeskError>> {
        let counter = self.clone();
        Box::pin(async move {
            let lent = counter.ask(|reply| Input::Claim { claim, reply }).await?;
            counter.offer(lent)
        })
    }

    fn report(&self, report: Report) -> Pending<Result<Taken, DeskError>> {
        let counter = self.clone();
        Box::pin(async move {
            let lock = report.lock;
            let events = report.events.into_iter();
            let events = events.map(|reported| counter.event(reported));
            let events = events.collect::<Result<Vec<_>, _>>()?;
            let report = |reply| Input::Report {
                lock,
                events,
                reply,
            };
            let refused = counter.ask(report).await?;
            let refused = refused.iter().map(|id| id.to_string()).collect();
            Ok(Taken { refused })
        })
    }

    fn give_back(&self, farewell: Farewell) -> Pending<Result<(), DeskError>> {
        let lock = farewell.lock;
        let sent = self.door.send(Message::Input(Input::GiveBack { lock }));
        Box::pin(std::future::ready(sent.map_err(|_| stopped())))
    }
}

impl Counter {
    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, LockLost>>) -> Input,
    ) -> Result<T, DeskError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.door.send(Message::Input(question(reply)));
        sent.map_err(|_| stopped())?;
        Ok(answer.await.map_err(|_| stopped())??)
    }

    fn offer(&self, lent: Lent) -> Result<Offer, DeskError> {
        let mut definitions = BTreeMap::new();
        let mut instances = Vec::with_capacity(lent.instances.len());
        for instance in lent.instances {
            if let Entry::Vacant(place) = definitions.entry(instance.version.to_string()) {
                place.insert(self.definition(instance.version)?);
            }
            instances.push(Offered {
                id: instance.id.to_string(),
                snapshot: Packed(instance.snapshot),
            });
        }
        Ok(Offer {
            lock: lent.lock,
            definitions,
            instances,
        })
    }

    fn definition(&self, version: Version) -> Result<Box<RawValue>, DeskError> {
        let unreadable = || DeskError::Unreadable(format!("the definition {version}"));
        let json = self.versions.get(version).ok_or_else(unreadable)?.to_json();
        let json = String::from_utf8(json).map_err(|_| unreadable())?;
        RawValue::from_string(json).map_err(|_| unreadable())
    }

    fn event(&self, reported: Reported) -> Result<(Arc<str>, Event), DeskError> {
        match journal::read(&reported.id, &reported.event.0, &self.versions) {
            Ok(Record::Event(event)) => Ok((Arc::from(reported.id), event)),
            _ => Err(DeskError::Unreadable(format!(
                "what is said of {}",
                reported.id
            ))),
        }
    }
}

fn stopped() -> DeskError {
    DeskError::Away("the workflow has stopped".into())
}
