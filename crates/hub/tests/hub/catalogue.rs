//! Creates, grows and deletes hubs, with crashes in between: answered changes are durable, others are done or not done.
//! // proves L1 L3

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::disk::Faults;
use highwater_env::random::Random;
use highwater_env::{Clock, Disk, SimClock, SimDisk};
use highwater_hub::Hub;
use highwater_log::{AdminError, HubInfo, HubSettings, HubSpec, Isolation, Log, Offset};

use crate::common::*;

struct World {
    disk: SimDisk,
    hub: Hub,
    random: Random,
    /// The possible states of each hub: before or after a change whose outcome is unknown.
    may_be: BTreeMap<String, Vec<Option<HubInfo>>>,
}

fn start(disk: &SimDisk) -> Hub {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock: Arc<dyn Clock> = Arc::new(SimClock::at_unix_nanos(5_000_000));
    open(&disk, &clock, &by_hand()).unwrap().0
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimDisk::new(seed);
        World {
            hub: start(&disk),
            disk,
            random: Random::seeded(seed),
            may_be: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        let hub = format!("hub-{}", self.random.below(3));
        if self.random.below(2) == 0 {
            self.disk.set_faults(Faults {
                syncs: 6,
                folder_syncs: 6,
                writes: 6,
                ..Faults::default()
            });
        }
        match self.random.below(10) {
            9 => self.set_defaults(),
            8 => {
                let names = [0, 1, 2].map(|number| format!("hub-{number}"));
                let missing = names.clone();
                let missing = missing
                    .into_iter()
                    .filter(|name| self.hub.hub(name).is_none());
                let missing: Vec<String> = missing.collect();
                let specs = names.map(|name| spec(&name, 2, HubSettings::default()));
                let made = done(self.hub.create_missing(specs.to_vec()));
                for hub in missing {
                    let now = self.hub.hub(&hub).map(|info| (*info).clone());
                    assert_eq!(now.is_some(), made.is_ok());
                    self.hear(&hub, made.clone().map(|()| now));
                }
            }
            0..3 => {
                let partitions = 1 + self.random.below(3) as u32;
                let made = done(
                    self.hub
                        .create(spec(&hub, partitions, HubSettings::default())),
                );
                self.hear(&hub, made.map(|info| Some((*info).clone())));
            }
            3 => {
                let partitions = 1 + self.random.below(5) as u32;
                let grown = done(self.hub.grow(&name(&hub), partitions));
                self.hear(&hub, grown.map(|info| Some((*info).clone())));
            }
            4 => {
                let settings = HubSettings {
                    retention: Some(Duration::from_millis(self.random.below(9))),
                    ..HubSettings::default()
                };
                let changed = done(self.hub.change(&name(&hub), settings));
                self.hear(&hub, changed.map(|info| Some((*info).clone())));
            }
            5 => {
                let deleted = done(self.hub.delete(&name(&hub)));
                self.hear(&hub, deleted.map(|()| None));
            }
            crash => {
                self.disk.set_faults(Faults::default());
                match crash {
                    6 => self.disk.crash(),
                    _ => self.disk.restart(),
                }
                self.hub = start(&self.disk);
                self.check();
            }
        }
        self.disk.set_faults(Faults::default());
    }

    /// All hubs take a default, or none.
    fn set_defaults(&mut self) {
        let retention = Some(Duration::from_secs(self.random.below(1000)));
        let set = self.hub.set_defaults(move |settings| HubSettings {
            retention,
            ..settings
        });
        for number in 0..3 {
            let hub = format!("hub-{number}");
            let now = self.hub.hub(&hub).map(|info| (*info).clone());
            if let (Ok(()), Some(info)) = (&set, &now) {
                assert_eq!(info.settings.retention, retention);
            }
            if now.is_some() {
                self.hear(&hub, set.clone().map(|()| now));
            }
        }
    }

    fn hear(&mut self, hub: &str, answer: Result<Option<HubInfo>, AdminError>) {
        match answer {
            Ok(now) => {
                self.may_be.insert(hub.into(), vec![now]);
            }
            // The outcome is unknown until the next start.
            Err(AdminError::Storage(_)) => {
                self.may_be.remove(hub);
            }
            Err(_) => {}
        }
    }

    fn check(&mut self) {
        for number in 0..3 {
            let hub = format!("hub-{number}");
            let is = self.hub.hub(&hub).map(|info| (*info).clone());
            if let Some(expected) = self.may_be.get(&hub) {
                assert!(expected.contains(&is), "{hub}: {is:?}, not {expected:?}");
            }
            let partitions = is.as_ref().map_or(0, |info| info.partitions);
            for partition in 0..partitions {
                let partition = self
                    .hub
                    .partition(&hub, partition)
                    .expect("it is in the catalogue");
                let read = done(partition.read(Offset(0), 10, Isolation::Uncommitted));
                assert!(read.is_ok());
            }
            self.may_be.insert(hub, vec![is]);
        }
    }
}

#[test]
fn answered_changes_are_durable() {
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..25 {
            world.step();
        }
        world.disk.crash();
        world.hub = start(&world.disk);
        world.check();
    }
}

// proves K4
#[test]
fn defaults_of_the_node_hold_for_all_hubs_but_its_own() {
    let disk = SimDisk::new(1);
    let hub = start(&disk);
    for name in ["old", "__own"] {
        done(hub.create(spec(name, 1, HubSettings::default()))).unwrap();
    }
    let short = |settings: HubSettings| match settings.retention {
        Some(retention) if retention > Duration::from_secs(9) => HubSettings {
            retention: Some(Duration::from_secs(9)),
            ..settings
        },
        _ => settings,
    };
    hub.set_defaults(short).unwrap();
    done(hub.create(spec("new", 1, HubSettings::default()))).unwrap();
    done(hub.create_missing(vec![spec("missing", 1, HubSettings::default())])).unwrap();
    done(hub.create_automatically(spec("automatic", 1, HubSettings::default()))).unwrap();
    let changed = HubSettings {
        batch_bytes_max: 5000,
        ..HubSettings::default()
    };
    done(hub.change(&name("new"), changed)).unwrap();
    done(hub.grow(&name("new"), 2)).unwrap();
    let check = |hub: &Hub| {
        for name in ["old", "new", "missing", "automatic"] {
            let retention = hub.hub(name).unwrap().settings.retention;
            assert_eq!(retention, Some(Duration::from_secs(9)), "{name}");
        }
        assert_eq!(hub.hub("__own").unwrap().settings, HubSettings::default());
        assert_eq!(hub.hub("new").unwrap().partitions, 2);
    };
    check(&hub);
    disk.crash();
    check(&start(&disk));
}

#[test]
fn a_wrong_number_or_name_is_refused() {
    let hub = start(&SimDisk::new(1));
    let create =
        |name: &str, partitions| done(hub.create(spec(name, partitions, HubSettings::default())));
    for requested in [0, HubSpec::PARTITIONS_MAX + 1] {
        let max = HubSpec::PARTITIONS_MAX;
        assert_eq!(
            create("h", requested),
            Err(AdminError::Partitions { requested, max })
        );
    }
    let info = create("h", 3).unwrap();
    assert_eq!(create("h", 3), Err(AdminError::Exists(name("h"))));
    assert_eq!(hub.hub_by_id(info.id), Some(info.clone()));
    let both = ["g", "h"].map(|name| spec(name, 2, HubSettings::default()));
    done(hub.create_missing(both.to_vec())).unwrap();
    assert_eq!(hub.hub("g").unwrap().partitions, 2);
    assert_eq!(hub.hub("h"), Some(info.clone()), "it was there");
    assert!(hub.partition("g", 1).is_some());
    let none = vec![
        spec("i", 1, HubSettings::default()),
        spec("j", 0, HubSettings::default()),
    ];
    assert!(done(hub.create_missing(none)).is_err());
    assert!(hub.hub("i").is_none(), "all or none");
    let shrunk = done(hub.grow(&name("h"), 2));
    assert_eq!(
        shrunk,
        Err(AdminError::Shrink {
            hub: name("h"),
            have: 3
        })
    );
    assert!(hub.partition("h", 3).is_none());
    assert_eq!(done(hub.grow(&name("h"), 4)).unwrap().partitions, 4);
    assert!(hub.partition("h", 3).is_some());
    assert_eq!(
        done(hub.delete(&name("x"))),
        Err(AdminError::Unknown(name("x")))
    );
    let settings = HubSettings {
        batch_bytes_max: 10,
        ..HubSettings::default()
    };
    assert!(matches!(
        done(hub.change(&name("h"), settings)),
        Err(AdminError::Settings(_))
    ));
}

#[test]
fn a_hub_made_again_is_another_one_and_empty() {
    let disk = SimDisk::new(1);
    let hub = start(&disk);
    let first = done(hub.create(spec("h", 1, HubSettings::default()))).unwrap();
    let mut pending = hub
        .partition("h", 0)
        .unwrap()
        .append_records(&[record("x")]);
    hub.commit();
    poll(&mut pending).unwrap().unwrap();
    done(hub.delete(&name("h"))).unwrap();
    let second = done(hub.create(spec("h", 1, HubSettings::default()))).unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(hub.partition("h", 0).unwrap().bounds().end, Offset(0));
    assert!(
        disk.files()
            .iter()
            .all(|path| !path.to_string_lossy().contains(&first.id.to_string()))
    );
}

#[test]
fn automatic_creation_stops_at_its_limits_and_administrators_go_on() {
    let options = highwater_hub::Options {
        auto_create_hubs_max: 2,
        auto_create_partitions_max: 6,
        ..by_hand()
    };
    let disk: Arc<dyn highwater_env::Disk> = Arc::new(SimDisk::new(1));
    let clock: Arc<dyn highwater_env::Clock> = Arc::new(SimClock::at_unix_nanos(0));
    let hub = open(&disk, &clock, &options).unwrap().0;
    let create = |name: &str, partitions: u32| {
        done(hub.create(spec(name, partitions, HubSettings::default()))).unwrap()
    };
    let create_automatically = |name: &str, partitions: u32| {
        let spec = spec(name, partitions, HubSettings::default());
        done(hub.create_automatically(spec)).map(|hub| hub.partitions)
    };
    create("__internal", 8);
    create("a", 4);
    let too_many = |what, max| Err(AdminError::TooMany { what, max });
    assert_eq!(create_automatically("b", 3), too_many("partitions", 6));
    assert_eq!(create_automatically("b", 2), Ok(2));
    assert_eq!(create_automatically("c", 1), too_many("hubs", 2));
    create("c", 100);
}

// proves G2
#[test]
fn automatic_creation_at_once_does_not_exceed_its_limits() {
    let options = highwater_hub::Options {
        auto_create_hubs_max: 10,
        auto_create_partitions_max: 6,
        ..by_hand()
    };
    let disk: Arc<dyn highwater_env::Disk> = Arc::new(SimDisk::new(1));
    let clock: Arc<dyn highwater_env::Clock> = Arc::new(SimClock::at_unix_nanos(0));
    let hub = open(&disk, &clock, &options).unwrap().0;
    let create = &|number: u32| {
        let spec = spec(&format!("h{number}"), 2, HubSettings::default());
        done(hub.create_automatically(spec)).is_ok()
    };
    let created = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|number| scope.spawn(move || create(number)))
            .collect();
        let created = threads.into_iter().map(|thread| thread.join().unwrap());
        created.filter(|created| *created).count()
    });
    assert_eq!(created, 3);
}
