//! An input of `type = "kafka"`: a topic of a cluster, which is read as a hub is. On a node whose log is a cluster,
//! hubs are topics, too ([`JobFile::over_cluster`]).

use std::time::Duration;

use highwater_connect::{CLUSTER_KEYS, ClusterRef, ClusterSettings};
use highwater_settings::{FileReader, Section};

use super::JobFile;

/// The cluster of an input and the source of its arrival times.
#[derive(Clone, Debug, PartialEq)]
pub struct KafkaInput {
    pub cluster: ClusterRef,
    pub arrival: ArrivalTime,
    /// The cluster has transactions: an earlier start of the job is fenced from the time journal.
    pub transactions: bool,
    /// The topic of the time journal; by default it is named after job, input and topic.
    pub journal: Option<String>,
    /// The margin for the difference between the clocks of node and brokers, and for replication.
    pub clock_margin: Duration,
}

/// The arrival time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArrivalTime {
    /// When a broker appended it.
    #[default]
    LogAppend,
    /// As its producer says, but never before that of an earlier event. Silence does not move time.
    Create,
}

const ARRIVALS: &[(&str, ArrivalTime)] = &[
    ("log-append-time", ArrivalTime::LogAppend),
    ("create-time", ArrivalTime::Create),
];

const CLOCK_MARGIN: Duration = Duration::from_secs(1);

impl JobFile {
    /// Turns inputs and outputs that are hubs into topics of the cluster that is the log of the node. `arrival` is the
    /// arrival time of the events of an input's hubs; `transactions`: the cluster has them.
    pub fn over_cluster(
        &mut self,
        transactions: bool,
        mut arrival: impl FnMut(&[String]) -> ArrivalTime,
    ) {
        let hubs = self.inputs.iter_mut();
        for input in hubs.filter(|input| !input.node_hubs().is_empty()) {
            input.kafka = Some(KafkaInput {
                cluster: ClusterRef::OfNode,
                arrival: arrival(&input.hubs),
                transactions,
                journal: None,
                clock_margin: CLOCK_MARGIN,
            });
        }
        for output in &mut self.outputs {
            if let Some(settings) = output.settings.over_cluster(transactions) {
                output.settings = settings;
            }
        }
    }
}

/// The keys of a Kafka input, beside those of its format.
pub(super) fn keys() -> Vec<&'static str> {
    let mut keys = vec![
        "type",
        "topic",
        "arrival",
        "journal",
        "clock_margin",
        "transactions",
    ];
    keys.extend(CLUSTER_KEYS);
    keys
}

/// The topic and the cluster.
pub(super) fn read(reader: &mut FileReader, section: &Section) -> Option<(String, KafkaInput)> {
    let topic = reader.required_text(section, "topic", "toll");
    let cluster = ClusterSettings::read(reader, section);
    let arrival = reader.choice(section, "arrival", ARRIVALS, &[]);
    let arrival = arrival.unwrap_or_default();
    let journal = reader.text(section, "journal", "toll-time");
    let transactions = reader.boolean(section, "transactions");
    let margin = reader.duration(section, "clock_margin").map(|margin| {
        let micros = u64::try_from(margin.ticks() / 10).unwrap_or_default();
        Duration::from_micros(micros)
    });
    if arrival == ArrivalTime::Create {
        for key in ["journal", "clock_margin", "transactions"] {
            reader.useless(section, key, "with create-time only events move time");
        }
    }
    Some((
        topic?,
        KafkaInput {
            cluster: ClusterRef::Named(cluster?),
            arrival,
            transactions: transactions.unwrap_or(true),
            journal,
            clock_margin: margin.unwrap_or(CLOCK_MARGIN),
        },
    ))
}
