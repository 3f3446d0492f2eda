//! Nodes and instances that die, over the coordinator of groups, in simulated time: the owners meanwhile, and the time
//! until every slot is owned again. `docs/scale.md` has the figures; `--nocapture` prints them.
// proves X1

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{TokioClock, paused};
use bytes::Bytes;
use highwater_env::random::Random;
use highwater_flow::{
    AssignedPartition, Assignment, Directory, GroupMember, GroupTimeouts, NodeInfo,
    OwnershipMember, SLOTS, SlotHolder, SlotOwner, SlotSet,
};
use highwater_hub::groups;
use highwater_log::{
    BoxFuture, GroupCoordinator, HubName, HubSettings, HubSpec, JoinRequest, Log, Membership,
    MemoryLog, SyncRequest,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const SESSION: Duration = Duration::from_secs(10);

/// A coordinator over a log in memory.
async fn coordinator(log: &Arc<MemoryLog>) -> Arc<dyn GroupCoordinator> {
    let log: Arc<dyn Log> = log.clone();
    let options = groups::Options::default();
    let service = groups::Service::new(log, TokioClock::start(), Random::seeded(1), options);
    let handle = service.handle();
    tokio::spawn(service.run(pending()));
    Arc::new(handle)
}

/// The slots that each living node serves.
type Ledger = Arc<Mutex<BTreeMap<usize, SlotSet>>>;

/// Closes and opens slots in the ledger, which has each of them once at any time.
struct LedgerHolder {
    node: usize,
    ledger: Ledger,
    random: Mutex<Random>,
}

impl SlotHolder for LedgerHolder {
    fn hold(&self, slots: SlotSet) -> BoxFuture<()> {
        let (node, ledger) = (self.node, self.ledger.clone());
        let closing = Duration::from_millis(self.random.lock().unwrap().below(400));
        Box::pin(async move {
            sleep(closing).await;
            let mut ledger = ledger.lock().unwrap();
            for (other, owned) in ledger.iter().filter(|(other, _)| **other != node) {
                let both: Vec<u16> = owned.iter().filter(|slot| slots.contains(*slot)).collect();
                assert!(
                    both.is_empty(),
                    "nodes {node} and {other} both serve {both:?}"
                );
            }
            ledger.insert(node, slots);
        })
    }

    fn confirmed(&self) {}

    fn resources(&self) -> Vec<u16> {
        (0..SLOTS).step_by(3).collect()
    }
}

struct TestNode {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
    directory: watch::Receiver<Directory>,
}

fn start_node(groups: &Arc<dyn GroupCoordinator>, node: usize, ledger: &Ledger) -> TestNode {
    let (directory, known) = watch::channel(Directory::default());
    let member = OwnershipMember {
        groups: groups.clone(),
        group: "nodes".into(),
        client: "test".into(),
        instance: Some(format!("instance-{node}")),
        node: NodeInfo {
            name: format!("node-{node}"),
            ..NodeInfo::default()
        },
        timeouts: GroupTimeouts {
            session: SESSION,
            heartbeat: SESSION / 10,
            ..GroupTimeouts::default()
        },
        holder: Arc::new(LedgerHolder {
            node,
            ledger: ledger.clone(),
            random: Mutex::new(Random::seeded(node as u64)),
        }),
        directory,
    };
    let stop = watch::Sender::new(false);
    let stopped = highwater_env::shutdown_signal(stop.subscribe());
    TestNode {
        task: tokio::spawn(member.run(stopped)),
        stop,
        directory: known,
    }
}

/// Waits until these nodes serve everything and agree on it. Returns how long it took.
async fn until_served(nodes: &BTreeMap<usize, TestNode>, ledger: &Ledger) -> Duration {
    let since = Instant::now();
    loop {
        let served: usize = ledger.lock().unwrap().values().map(SlotSet::len).sum();
        let know = |node: &TestNode| {
            let directory = node.directory.borrow();
            (0..SLOTS).all(|slot| directory.owner(slot) != SlotOwner::Nobody)
                && directory.nodes.len() == nodes.len()
        };
        if served == usize::from(SLOTS) && nodes.values().all(know) {
            return since.elapsed();
        }
        assert!(
            since.elapsed() < Duration::from_secs(120),
            "{served} are served"
        );
        sleep(Duration::from_millis(10)).await;
    }
}

/// Nodes join, leave and die at any moment: no slot is ever served by two of them, and a dead node is replaced in time.
#[test]
fn slots_have_one_owner_while_nodes_come_and_go() {
    let mut longest = Duration::ZERO;
    for seed in 0..20 {
        paused(async {
            let groups = coordinator(&Arc::new(MemoryLog::new(|| 0))).await;
            let (ledger, mut random) = (Ledger::default(), Random::seeded(seed));
            let mut nodes = BTreeMap::new();
            for node in 0..4 {
                nodes.insert(node, start_node(&groups, node, &ledger));
                sleep(Duration::from_millis(random.below(3000))).await;
            }
            until_served(&nodes, &ledger).await;
            for next in 4..10 {
                sleep(Duration::from_millis(random.below(3000))).await;
                let victim = *nodes
                    .keys()
                    .nth(random.below(nodes.len() as u64) as usize)
                    .unwrap();
                let node = nodes.remove(&victim).unwrap();
                let dies = random.below(2) == 0;
                if dies {
                    node.task.abort();
                    ledger.lock().unwrap().remove(&victim);
                } else {
                    node.stop.send_replace(true);
                    node.task.await.unwrap();
                    assert!(
                        ledger.lock().unwrap()[&victim].is_empty(),
                        "it closed everything"
                    );
                    ledger.lock().unwrap().remove(&victim);
                }
                let took = until_served(&nodes, &ledger).await;
                assert!(
                    took < SESSION + Duration::from_secs(5),
                    "seed {seed}: it took {took:?}"
                );
                if dies {
                    longest = longest.max(took);
                }
                nodes.insert(next, start_node(&groups, next, &ledger));
                until_served(&nodes, &ledger).await;
            }
        });
    }
    println!("a dead node of four was replaced within {longest:?}, in simulated time");
}

/// A member whose messages begin with another version, as a node of a later release might send them.
struct OtherVersion {
    groups: Arc<dyn GroupCoordinator>,
    member: String,
}

impl OtherVersion {
    /// Joins, and assigns a message of its own version to everybody if it leads. Returns its assignment.
    async fn join(&mut self) -> Bytes {
        loop {
            let request = JoinRequest {
                group: "nodes".into(),
                member: self.member.clone(),
                instance: None,
                client_id: "later".into(),
                client_host: String::new(),
                session_timeout: SESSION,
                rebalance_timeout: SESSION,
                protocol_type: "highwater".into(),
                protocols: vec![("slots".into(), Bytes::from_static(b"\x02later"))],
                expects_member_id: false,
            };
            let Ok(joined) = self.groups.join(request).await else {
                continue;
            };
            self.member.clone_from(&joined.member);
            let message = Bytes::from_static(b"\x02all of them");
            let all = joined.members.into_iter();
            let synced = self.groups.sync(SyncRequest {
                member: Membership {
                    group: "nodes".into(),
                    generation: joined.generation,
                    member: joined.member,
                    instance: None,
                },
                protocol_type: Some(joined.protocol_type),
                protocol: Some(joined.protocol),
                assignments: all.map(|one| (one.member, message.clone())).collect(),
            });
            if let Ok(synced) = synced.await {
                return synced.assignment;
            }
        }
    }
}

fn served(ledger: &Ledger, node: usize) -> Option<usize> {
    ledger.lock().unwrap().get(&node).map(SlotSet::len)
}

#[test]
fn nodes_that_do_not_understand_each_other_never_serve_the_same_slot() {
    paused(async {
        let groups = coordinator(&Arc::new(MemoryLog::new(|| 0))).await;
        let ledger = Ledger::default();
        let node = start_node(&groups, 0, &ledger);
        let nodes = BTreeMap::from([(0, node)]);
        until_served(&nodes, &ledger).await;
        let mut later = OtherVersion {
            groups: groups.clone(),
            member: String::new(),
        };
        // The leader gives nothing to a member that it does not understand, and keeps all.
        assert_eq!(later.join().await, Bytes::new());
        until_served(&nodes, &ledger).await;
        // A node that does not understand the leader serves nothing.
        nodes[&0].stop.send_replace(true);
        while served(&ledger, 0) != Some(0) {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(later.join().await, "\x02all of them");
        let second = start_node(&groups, 1, &ledger);
        let beats = async {
            loop {
                sleep(SESSION / 10).await;
                later.join().await;
            }
        };
        tokio::select! {
            () = beats => {}
            () = sleep(SESSION * 3) => {}
        }
        assert_eq!(served(&ledger, 1).unwrap_or_default(), 0);
        assert_eq!(second.directory.borrow().nodes.len(), 0);
    });
}

/// An instance of ten that share 1,000 partitions dies: the others have its partitions within the session and five
/// seconds.
#[test]
fn a_thousand_partitions_are_taken_over_in_time() {
    paused(async {
        let log = Arc::new(MemoryLog::new(|| 0));
        let hub = HubName::new("events").unwrap();
        let spec = HubSpec {
            name: hub.clone(),
            partitions: 1000,
            settings: HubSettings::default(),
        };
        log.create(spec).await.unwrap();
        let groups = coordinator(&log).await;
        let owned: Arc<Mutex<BTreeSet<(u32, usize)>>> = Arc::default();
        let instance = |number: usize| {
            let member = GroupMember {
                log: log.clone(),
                groups: groups.clone(),
                hub: hub.clone(),
                group: "workers".into(),
                client: "test".into(),
                assignment: Assignment::Shared { instance: None },
                timeouts: GroupTimeouts::default(),
            };
            let owned = owned.clone();
            let work = move |partition: AssignedPartition| {
                let owned = owned.clone();
                async move {
                    let of = (partition.topic_partition.partition, number);
                    owned.lock().unwrap().insert(of);
                    partition.stopped().await;
                    owned.lock().unwrap().remove(&of);
                }
            };
            tokio::spawn(member.run(work, pending()))
        };
        let instances: Vec<JoinHandle<()>> = (0..10).map(instance).collect();
        let count = |dead: Option<usize>| {
            let owned = owned.lock().unwrap();
            let alive = owned.iter().filter(|(_, number)| Some(*number) != dead);
            alive
                .map(|(partition, _)| *partition)
                .collect::<BTreeSet<u32>>()
                .len()
        };
        while count(None) < 1000 {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_secs(30)).await;
        instances[3].abort();
        let died = Instant::now();
        while count(Some(3)) < 1000 {
            sleep(Duration::from_millis(10)).await;
        }
        let took = died.elapsed();
        println!(
            "1,000 partitions of 10 instances were owned again {took:?} after a death, in simulated time"
        );
        let session = GroupTimeouts::default().session;
        assert!(took < session + Duration::from_secs(5), "it took {took:?}");
    });
}
