//! The failed instances of a partition, for supervisors and HTTP handlers in this process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use highwater_log::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::shard::{Message, ShardSender};
use crate::core::{Claim, ClaimedInstances, Input, LockLost};
use crate::definition::Version;
use crate::journal::{self, Record};
use crate::machine::Event;
use crate::supervise::{
    Base64Bytes, ClaimResponse, ClaimedSnapshot, FailedInstanceError, FailedInstanceSource,
    OutcomeReport, ReleaseRequest, ReportResponse, ReportedEvent,
};
use crate::versions::Versions;

/// Claims failed instances from the dispatcher of a partition.
#[derive(Clone)]
pub struct LocalFailedInstances {
    pub(super) sender: ShardSender,
    pub(super) versions: Versions,
}

impl FailedInstanceSource for LocalFailedInstances {
    fn claim(&self, claim: Claim) -> BoxFuture<Result<ClaimResponse, FailedInstanceError>> {
        let source = self.clone();
        Box::pin(async move {
            let claimed = source.ask(|reply| Input::Claim { claim, reply }).await?;
            source.response(claimed)
        })
    }

    fn report(
        &self,
        report: OutcomeReport,
    ) -> BoxFuture<Result<ReportResponse, FailedInstanceError>> {
        let source = self.clone();
        Box::pin(async move {
            let lock = report.lock;
            let events = report.events.into_iter();
            let events = events.map(|reported| source.event(reported));
            let events = events.collect::<Result<Vec<_>, _>>()?;
            let report = |reply| Input::Report {
                lock,
                events,
                reply,
            };
            let refused = source.ask(report).await?;
            let refused = refused.iter().map(|id| id.to_string()).collect();
            Ok(ReportResponse { refused })
        })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<Result<(), FailedInstanceError>> {
        let lock = request.lock;
        let sent = self
            .sender
            .send(Message::Input(Input::ReleaseClaim { lock }));
        Box::pin(std::future::ready(sent.map_err(|_| stopped())))
    }
}

impl LocalFailedInstances {
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, LockLost>>) -> Input,
    ) -> Result<T, FailedInstanceError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.sender.send(Message::Input(request(reply)));
        sent.map_err(|_| stopped())?;
        Ok(answer.await.map_err(|_| stopped())??)
    }

    fn response(&self, claimed: ClaimedInstances) -> Result<ClaimResponse, FailedInstanceError> {
        let mut definitions = BTreeMap::new();
        let mut instances = Vec::with_capacity(claimed.instances.len());
        for instance in claimed.instances {
            if let Entry::Vacant(entry) = definitions.entry(instance.version.to_string()) {
                entry.insert(self.definition(instance.version)?);
            }
            instances.push(ClaimedSnapshot {
                id: instance.id.to_string(),
                snapshot: Base64Bytes(instance.snapshot),
            });
        }
        Ok(ClaimResponse {
            lock: claimed.lock,
            definitions,
            instances,
        })
    }

    fn definition(&self, version: Version) -> Result<Box<RawValue>, FailedInstanceError> {
        let unreadable = || FailedInstanceError::Unreadable(format!("the definition {version}"));
        let json = self.versions.get(version).ok_or_else(unreadable)?.to_json();
        let json = String::from_utf8(json).map_err(|_| unreadable())?;
        RawValue::from_string(json).map_err(|_| unreadable())
    }

    fn event(&self, reported: ReportedEvent) -> Result<(Arc<str>, Event), FailedInstanceError> {
        match journal::read(&reported.id, &reported.event.0, &self.versions) {
            Ok(Record::Event(event)) => Ok((Arc::from(reported.id), event)),
            _ => Err(FailedInstanceError::Unreadable(format!(
                "the event of {}",
                reported.id
            ))),
        }
    }
}

fn stopped() -> FailedInstanceError {
    FailedInstanceError::Away("the workflow has stopped".into())
}
