//! Where a hub stood at a checkpoint, as bytes.

use highwater_log::{HubId, Offset, Producer};

use super::super::EndpointError;
use super::super::mark::{self, Kind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub hub: HubId,
    pub producer: Producer,
    /// The number of the next row.
    pub next: u64,
    pub partitions: Vec<PartitionMark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionMark {
    /// What is ours before it has been counted.
    pub end: Offset,
    /// The number that the log expects of our producer's next record.
    pub sequence: i32,
    /// Rows that are there and were not handed over again yet.
    pub pass_over: u64,
}

impl Mark {
    pub fn write(&self) -> Vec<u8> {
        let mut out = mark::begin(Kind::Hub);
        out.bytes.extend_from_slice(&self.hub.0);
        out.i64(self.producer.id);
        out.u32(self.producer.epoch as u32);
        out.u64(self.next);
        out.count(self.partitions.len());
        for partition in &self.partitions {
            out.i64(partition.end.0);
            out.u32(partition.sequence as u32);
            out.u64(partition.pass_over);
        }
        out.bytes
    }

    pub fn read(bytes: &[u8]) -> Result<Mark, EndpointError> {
        let mut input = mark::open(Kind::Hub, bytes)?;
        let mut read = || {
            let mut hub = [0; 16];
            for byte in &mut hub {
                *byte = input.u8()?;
            }
            let (id, epoch) = (input.i64()?, input.u32()? as i16);
            let next = input.u64()?;
            let count = input.count()?;
            let partitions = (0..count).map(|_| {
                Ok(PartitionMark {
                    end: Offset(input.i64()?),
                    sequence: input.u32()? as i32,
                    pass_over: input.u64()?,
                })
            });
            Ok(Mark {
                hub: HubId(hub),
                producer: Producer { id, epoch },
                next,
                partitions: partitions.collect::<Result<_, _>>()?,
            })
        };
        read().map_err(mark::damaged)
    }
}
