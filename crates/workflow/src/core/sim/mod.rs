//! Simulation of scheduler and supervisor under faults: random workflows, unreliable services, crashes at every point
//! of the journal, compaction, operator decisions, and remote supervisors that lose their locks.
//!
//! Everything is drawn from a seed. `HIGHWATER_SEEDS=20000 cargo test -p highwater-workflow core::sim` runs more,
//! `HIGHWATER_SEED=7` replays one.

mod disk;
mod remote_supervisors;
mod services;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;

use crate::definition::{Builder, Definition, Retry, StepBuilder};
use crate::machine::{End, Instance, Phase};
use world::World;

// proves W1, W3, W4, W5, W6
#[test]
fn whatever_crashes_every_transaction_is_done_or_undone() {
    let (first, count) = match number("HIGHWATER_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("HIGHWATER_SEEDS").unwrap_or(1500)),
    };
    let mut ends = BTreeMap::new();
    for seed in first..first + count {
        match catch_unwind(AssertUnwindSafe(|| live(seed))) {
            Ok(seen) => seen
                .into_iter()
                .for_each(|end| *ends.entry(end).or_insert(0) += 1),
            Err(panic) => {
                eprintln!("seed {seed} failed");
                resume_unwind(panic);
            }
        }
    }
    if count > 100 {
        for end in [
            "completed",
            "refused",
            "failed",
            "cancelled",
            "resolved",
            "parked",
        ] {
            assert!(
                ends.contains_key(end),
                "no instance was ever {end}: {ends:?}"
            );
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// One run: instances are started, faults happen, and in the end they stop.
fn live(seed: u64) -> Vec<&'static str> {
    let mut random = Random::seeded(seed);
    let definition = definition(&mut random);
    let elsewhere = random.below(2) == 0;
    let mut world = World::new(definition, random.next_u64(), elsewhere);
    let turns = 20 + random.below(200);
    for _ in 0..turns {
        world.turn(&mut random);
    }
    world.calm_down(&mut random);
    check(&world)
}

/// One to five steps, some of them parallel, skipped, delayed, refusing or finishing early.
fn definition(random: &mut Random) -> Definition {
    let mut builder = Builder::new("sim");
    if random.below(4) == 0 {
        builder = builder.deadline(Duration::from_millis(1 + random.below(3000)));
    }
    let count = 1 + random.below(5);
    for number in 0..count {
        let name = format!("s{number}");
        let url = format!("http://s{number}/{{{{id}}}}");
        let retry = |random: &mut Random| Retry {
            tries: 1 + random.below(3) as u32,
            delay: Duration::from_millis(1 + random.below(200)),
            delay_max: Duration::from_millis(500),
            jitter: 20,
        };
        let mut step = StepBuilder::call(&name, "PUT", &url).retry(retry(random));
        if random.below(5) > 0 {
            step = step.undo("DELETE", &url).undo_retry(retry(random));
        }
        match random.below(12) {
            0 => step = step.when("input.n > 50"),
            1 => step = step.finish_when(&format!("steps.{name}.body.n > 60")),
            2 => step = step.refuse_when(&format!("steps.{name}.body.n > 60"), "too much"),
            3 => step = step.after(Duration::from_millis(random.below(300))),
            _ => {}
        }
        if random.below(3) > 0 {
            step = step.group(if number < 2 { "a" } else { "b" });
        }
        builder = builder.step(step);
    }
    // Invalid definitions (split groups, conditions inside a group) are drawn again.
    builder.build().unwrap_or_else(|_| definition(random))
}

/// Checks the invariants when nothing is in progress; returns the ends of the instances.
fn check(world: &World) -> Vec<&'static str> {
    let mut ends = Vec::new();
    for id in world.accepted() {
        let instance = world.where_is(&id);
        let instance = instance.unwrap_or_else(|| panic!("{id} was accepted and is nowhere"));
        ends.push(instance.phase.name());
        check_held(world, &instance);
        world.services.check_order(&id, world.crashed.contains(&id));
    }
    ends
}

/// The services hold everything of a completed instance and nothing of a failed one.
fn check_held(world: &World, instance: &Instance) {
    for (number, step) in instance.definition.steps.iter().enumerate() {
        let held = world.services.is_held(&instance.id, number);
        let state = &instance.steps[number];
        match instance.phase {
            Phase::Ended(End::Completed) => {
                let done = state.done.status == crate::machine::Status::Succeeded;
                assert_eq!(held, done, "{} {}: {instance:#?}", instance.id, step.name);
            }
            Phase::Ended(End::Resolved) => {}
            Phase::Ended(_) => {
                let left = state.undone.status == crate::machine::Status::Skipped;
                assert!(
                    !held || step.undo.is_none() || left,
                    "{} still holds {}: {instance:#?}",
                    instance.id,
                    step.name
                );
            }
            Phase::Parked => {
                let parked = |step: &crate::machine::StepState| {
                    step.undone.status == crate::machine::Status::Failed
                };
                let stuck = instance
                    .steps
                    .iter()
                    .position(parked)
                    .expect("one is stuck");
                assert!(!held || number <= stuck || step.undo.is_none());
            }
            phase => panic!("{} is still {}", instance.id, phase.name()),
        }
    }
}

/// Shared, so that it is allocated once.
fn arc(text: &str) -> Arc<str> {
    Arc::from(text)
}
