//! Where a hub stood at a checkpoint, as bytes.

use highwater_codec::{DecodeError, Writer};
use highwater_log::{HubId, Offset};

use super::super::EndpointError;
use super::super::mark::{self, Kind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub hub: HubId,
    /// The id of our producer.
    pub producer: i64,
    /// The number of the next row.
    pub next: u64,
    pub partitions: Vec<PartitionMark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionMark {
    /// Where the partition ended.
    pub end: Offset,
    /// Rows of this partition whose numbers are lower are there.
    pub have: u64,
}

impl Mark {
    pub fn write(&self) -> Vec<u8> {
        let mut out = mark::begin(Kind::Hub);
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

    pub fn read(bytes: &[u8]) -> Result<Mark, EndpointError> {
        let mut input = mark::open(Kind::Hub, bytes)?;
        let mut read = || {
            let mut hub = [0; 16];
            for byte in &mut hub {
                *byte = input.u8()?;
            }
            let (producer, next) = (input.i64()?, input.u64()?);
            let count = input.count()?;
            let partitions = (0..count).map(|_| {
                Ok(PartitionMark {
                    end: Offset(input.i64()?),
                    have: input.u64()?,
                })
            });
            Ok(Mark {
                hub: HubId(hub),
                producer,
                next,
                partitions: partitions.collect::<Result<_, _>>()?,
            })
        };
        match read() {
            Ok(Mark { partitions, .. }) if partitions.is_empty() => {
                let error = DecodeError::Invalid("a hub has at least one partition");
                Err(mark::damaged(error))
            }
            read => read.map_err(mark::damaged),
        }
    }
}
