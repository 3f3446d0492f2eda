//! A store of state that does not answer for a while, or carries a request out and does not say so. // proves X1

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_connect::{StateStore, StoreUnavailable};
use highwater_env::random::Random;
use highwater_job::live::{Checkpoints, ShardState};

use crate::live::instances::{Play, job_text, undisturbed};
use crate::live::repeatable::{QUERIES, runtime};
use crate::live::world::{World, job};

/// A store whose requests fail at random, before or after they took effect.
pub(super) struct UnreliableStore {
    store: Arc<dyn StateStore>,
    random: Mutex<Random>,
    /// How many of a hundred requests fail.
    failing: AtomicU64,
    failed: AtomicU64,
}

impl UnreliableStore {
    /// In the place of the world's store.
    pub(super) fn of(world: &mut World, seed: u64) -> Arc<UnreliableStore> {
        let store = Arc::new(UnreliableStore {
            store: world.store.clone(),
            random: Mutex::new(Random::seeded(seed)),
            failing: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        world.store = store.clone();
        store
    }

    pub(super) fn fail(&self, percent: u64) {
        self.failing.store(percent, Ordering::Relaxed);
    }

    fn request<T>(&self, request: impl Fn(&dyn StateStore) -> io::Result<T>) -> io::Result<T> {
        let (fate, takes_effect) = {
            let mut random = self.random.lock().unwrap();
            (random.below(100), random.below(2) == 0)
        };
        if fate >= self.failing.load(Ordering::Relaxed) {
            return request(&*self.store);
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        if takes_effect {
            request(&*self.store)?;
        }
        Err(StoreUnavailable("the connection was lost".into()).into())
    }
}

impl StateStore for UnreliableStore {
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.request(|store| store.list(folder))
    }

    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.request(|store| store.read(path))
    }

    fn create(&self, path: &str, bytes: &[u8]) -> io::Result<bool> {
        self.request(|store| store.create(path, bytes))
    }

    fn delete(&self, path: &str) -> io::Result<()> {
        self.request(|store| store.delete(path))
    }
}

#[test]
fn a_request_that_failed_after_it_took_effect_is_no_take_over() {
    let (mut stored, mut failed) = (0, 0);
    for seed in 0..100 {
        let mut world = World::new(seed);
        let store = UnreliableStore::of(&mut world, seed);
        store.fail(25);
        let state = ShardState::new(store.clone(), "job/shared");
        let mut last = None;
        for number in 1..30 {
            match state.write(number, &[number as u8]) {
                Ok(()) => {
                    last = Some(number);
                    stored += 1;
                }
                Err(error) => {
                    assert!(StoreUnavailable::is_reason_of(&error), "{seed}: {error}");
                    failed += 1;
                }
            }
        }
        store.fail(0);
        // The next owner finds the last checkpoint that was stored, or a later one.
        let next = ShardState::new(store, "job/shared");
        let found = next.list().unwrap().pop();
        assert!(found >= last, "seed {seed}: {found:?} after {last:?}");
        if let Some(found) = found {
            assert_eq!(next.read(found).unwrap(), [found as u8]);
        }
        let refused = state.write(40, b"zombie").unwrap_err().to_string();
        assert!(refused.contains("has taken it over"), "{refused}");
        next.write(40, b"next").unwrap();
        assert_eq!(next.list().unwrap().pop(), Some(40));
    }
    assert!(stored > 500 && failed > 500, "{stored} and {failed}");
}

/// Instances come, go and die while the store is down, or loses one answer of ten.
#[test]
fn no_outage_of_the_store_shows_in_the_rows() {
    let (mut failed, mut rows) = (0, 0);
    for seed in 0..3 * QUERIES.len() as u64 {
        let (sql, partitions) = QUERIES[seed as usize % QUERIES.len()];
        let runtime = runtime();
        runtime.block_on(async {
            let mut play = Play::new(seed, sql, partitions).await;
            let store = UnreliableStore::of(&mut play.world, seed);
            play.begin();
            play.assign();
            for step in 0..60 {
                match step % 20 {
                    0 => store.fail(10),
                    8 => store.fail(100),
                    14 => store.fail(0),
                    _ => {}
                }
                play.step().await;
            }
            store.fail(0);
            let played = play.finish().await;
            let world = played.world;
            let expected = undisturbed(&world, &job(&job_text(sql, ""))).await;
            for output in ["out", "two", "Dead", "Late"] {
                let (found, expected) =
                    (world.recorder.rows(output), expected.recorder.rows(output));
                assert_eq!(found, expected, "seed {seed}, output {output} of {sql}");
                rows += found.len();
            }
            failed += store.failed.load(Ordering::Relaxed);
        });
    }
    assert!(rows > 1500 && failed > 150, "{rows} rows, {failed} failed");
}
