//! Publishes tracking events of deliveries on a hub.
//!
//! The journal is the outbox. The publisher reads it from its last position and stores the new position, in a journal
//! of its own, after the hub has the events. A crash between the two repeats some of them, with the same ids:
//! `{deliveryId}_{stage}`.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::{Isolation, Offset};
use serde::Serialize;

use super::state::{Deliveries, Event};
use crate::journal::{self, JournalError, State, Store};
use crate::model::{Location, Stage, time_text};
use crate::node::{Batch, CloudEvent, Node};

pub const HUB: &str = "delivery-events";

/// The publisher's position in the journal.
#[derive(Debug, Default)]
pub struct PublishPosition(i64);

impl State for PublishPosition {
    type Event = i64;

    fn apply(&mut self, event: &i64) {
        self.0 = *event;
    }
}

/// A published event.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrackingEvent {
    pub delivery_id: String,
    pub stage: Stage,
    pub location: Location,
    pub time: String,
    pub owner_id: String,
    pub drone_id: String,
    pub deadline: String,
}

impl TrackingEvent {
    pub fn id(&self) -> String {
        format!("{}_{}", self.delivery_id, self.stage.name())
    }
}

/// Publishes forever, retrying while the node is unavailable.
pub async fn run(
    deliveries: Arc<Store<Deliveries>>,
    published: Store<PublishPosition>,
    mut node: Node,
) -> Result<(), JournalError> {
    let journal = deliveries.journal().clone();
    let mut next = Offset(published.read(|published| published.0).await);
    loop {
        let Some((events, after)) = journal::read::<Event>(&*journal, next).await? else {
            journal.wait_past(next, Isolation::Committed).await;
            continue;
        };
        let events: Vec<TrackingEvent> = deliveries
            .read(|deliveries| {
                let events = events.iter();
                events
                    .filter_map(|event| tracking(deliveries, event))
                    .collect()
            })
            .await;
        send(&mut node, &events).await;
        published.change(|_| (Some(after.0), ())).await;
        next = after;
    }
}

fn tracking(deliveries: &Deliveries, event: &Event) -> Option<TrackingEvent> {
    let (id, stage, location, at_ms) = match event {
        Event::Created { delivery, at_ms } => {
            (&delivery.id, Stage::Created, delivery.pickup, at_ms)
        }
        Event::Rescheduled {
            id, pickup, at_ms, ..
        } => (id, Stage::Rescheduled, *pickup, at_ms),
        Event::Moved {
            id,
            stage,
            location,
            at_ms,
        } => (id, *stage, *location, at_ms),
        Event::Completed {
            id,
            location,
            at_ms,
            ..
        } => (id, Stage::Completed, *location, at_ms),
        Event::Cancelled { id, at_ms } => {
            let known = deliveries.by_id.get(id)?;
            (id, Stage::Cancelled, known.location, at_ms)
        }
        Event::Closed { .. } | Event::NotifyAsked { .. } => return None,
    };
    let body = &deliveries.by_id.get(id)?.body;
    Some(TrackingEvent {
        delivery_id: id.clone(),
        stage,
        location,
        time: time_text(*at_ms),
        owner_id: body.owner.user_id.clone(),
        drone_id: body.drone_id.clone(),
        deadline: body.deadline.clone(),
    })
}

async fn send(node: &mut Node, events: &[TrackingEvent]) {
    const BATCH_MAX: usize = 1000;
    const PAUSE: Duration = Duration::from_millis(250);
    for chunk in events.chunks(BATCH_MAX) {
        let mut batch = Batch::new();
        for one in chunk {
            batch.push(&CloudEvent {
                specversion: "1.0",
                id: &one.id(),
                source: "/drone-delivery/delivery",
                kind: one.stage.name(),
                subject: &one.delivery_id,
                data: one,
            });
        }
        let batch = batch.text();
        while let Err(error) = node.send(HUB, batch.clone()).await {
            eprintln!("delivery: events wait for the node: {error}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}
