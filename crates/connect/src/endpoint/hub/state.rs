//! The state of a hub endpoint in a checkpoint.

use highwater_codec::{DecodeError, Writer};
use highwater_log::{HubId, Offset};

use super::super::EndpointError;
use super::super::state::{self, EndpointKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubState {
    pub hub: HubId,
    /// The id of the output's producer.
    pub producer: i64,
    /// The number of the next row.
    pub next: u64,
    pub partitions: Vec<PartitionState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionState {
    /// The end of the partition.
    pub end: Offset,
    /// Rows with lower numbers are in the partition.
    pub have: u64,
}

impl HubState {
    pub(super) fn write(&self, kind: EndpointKind) -> Vec<u8> {
        let mut out = state::begin(kind);
        out.raw(&self.hub.0);
        out.i64(self.producer);
        out.u64(self.next);
        out.count(self.partitions.len());
        for partition in &self.partitions {
            out.i64(partition.end.0);
            out.u64(partition.have);
        }
        out
    }

    pub(super) fn read(kind: EndpointKind, bytes: &[u8]) -> Result<HubState, EndpointError> {
        let mut input = state::open(kind, bytes)?;
        let mut read = || {
            let mut hub = [0; 16];
            for byte in &mut hub {
                *byte = input.u8()?;
            }
            let (producer, next) = (input.i64()?, input.u64()?);
            let count = input.count()?;
            let partitions = (0..count).map(|_| {
                Ok(PartitionState {
                    end: Offset(input.i64()?),
                    have: input.u64()?,
                })
            });
            Ok(HubState {
                hub: HubId(hub),
                producer,
                next,
                partitions: partitions.collect::<Result<_, _>>()?,
            })
        };
        match read() {
            Ok(HubState { partitions, .. }) if partitions.is_empty() => {
                let error = DecodeError::Invalid("a hub has at least one partition");
                Err(state::damaged(error))
            }
            read => read.map_err(state::damaged),
        }
    }
}
