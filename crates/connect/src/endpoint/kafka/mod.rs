//! Rows as records of a Kafka topic, exactly once where the cluster has transactions.
//!
//! The records, keys and partitions are those of a hub, and so is the protocol (`hub`): the number of a row is in its
//! record, and a start finds the last one. Only the fencing of an earlier start differs, because markers are written by
//! brokers alone ([`Fencing::Transactions`]). Rows are visible at once, to readers of uncommitted records as well.

use std::path::Path;
use std::sync::Arc;

use highwater_query::plan::Name;

use super::hub::{Fencing, HubTarget, LogSource};
use super::state::EndpointKind;
use super::{EndpointError, OpenResult, OutputContext, OutputKind, OutputSettings, OutsideAccess};
use crate::cluster::{ClusterConnector, ClusterRef, ClusterSettings};

/// The settings of an output to a topic, or to a hub of a node whose log is a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KafkaOutput {
    pub cluster: ClusterRef,
    pub topic: String,
    /// The column whose value is the key of the record.
    pub key: Option<String>,
    /// The cluster has transactions.
    pub transactions: bool,
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "kafka",
    keys: &[
        "servers",
        "tls",
        "ca",
        "client_cert",
        "client_key",
        "mechanism",
        "user",
        "password",
        "token",
        "topic",
        "key",
        "transactions",
    ],
    read: |reader, section| {
        let cluster = ClusterSettings::read(reader, section);
        let topic = reader.required_text(section, "topic", "alerts");
        let key = reader.text(section, "key", "plate");
        let transactions = reader.boolean(section, "transactions");
        Some(Arc::new(KafkaOutput {
            cluster: ClusterRef::Named(cluster?),
            topic: topic?,
            key,
            transactions: transactions.unwrap_or(true),
        }))
    },
    missing_feature: None,
};

impl OutputSettings for KafkaOutput {
    fn check(&self, access: &OutsideAccess, folder: &Path) -> Result<(), String> {
        self.cluster.check(access, folder)
    }

    fn repeats(&self) -> Option<&'static str> {
        (!self.transactions).then_some(
            "at least once: after a crash some rows may come again, with the same headers `row` and `output`",
        )
    }

    fn is_fenced(&self) -> bool {
        self.transactions
    }

    fn partition_key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult {
        let clusters = context.clusters.clone().ok_or_else(|| {
            EndpointError::unfit("no cluster can be reached here: run the job with `highwater up`")
        })?;
        let target = HubTarget {
            name: self.topic.clone(),
            kind: EndpointKind::Kafka,
            fencing: match self.transactions {
                true => Fencing::Transactions,
                false => Fencing::Off,
            },
            source: LogSource::Cluster {
                cluster: Box::new(self.cluster.clone()),
                connector: ClusterConnector {
                    clusters,
                    access: context.access.clone(),
                },
                folder: context.folder.clone(),
            },
        };
        target.open(self.key.as_deref(), names, context)
    }
}
