//! The shared identity of a job's instances: its state's identity, and where its input starts. The first instance that
//! starts the job decides, and the others read it.

use std::io;
use std::sync::Arc;

use highwater_codec::{DecodeError, Writer};
use highwater_connect::StateStore;
use highwater_log::Offset;
use highwater_time::Instant;

use super::super::fingerprint::Fingerprint;
use super::super::store_object::ObjectFormat;

const NAME: &str = "job.identity";
const FORMAT: ObjectFormat = ObjectFormat {
    title: *b"HWJOBIDE",
    version: 1,
    mistaken: "it is not the identity of a job (unknown header)",
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobIdentity {
    /// Drawn at random: distinguishes the exchange from that of an earlier state.
    pub id: u64,
    /// Of the numbers of rows.
    pub epoch: u64,
    /// Rows before this time are not sent.
    pub since: Instant,
    /// The first offset of each stream.
    pub starts: Vec<Offset>,
    pub fingerprint: Fingerprint,
}

impl JobIdentity {
    fn encode(&self) -> Vec<u8> {
        FORMAT.encode(|out| {
            out.u64(self.id);
            out.u64(self.epoch);
            out.i64(self.since.ticks());
            out.count(self.starts.len());
            self.starts.iter().for_each(|start| out.i64(start.0));
            self.fingerprint.write(out);
        })
    }

    fn decode(bytes: &[u8]) -> Result<JobIdentity, DecodeError> {
        FORMAT.decode(bytes, |from| {
            Ok(JobIdentity {
                id: from.u64()?,
                epoch: from.u64()?,
                since: Instant::from_ticks(from.i64()?),
                starts: (0..from.count()?)
                    .map(|_| from.i64().map(Offset))
                    .collect::<Result<_, _>>()?,
                fingerprint: Fingerprint::read(from)?,
            })
        })
    }

    /// The identity in a folder of the store, if there is one.
    pub(super) fn read(store: &dyn StateStore, folder: &str) -> io::Result<Option<JobIdentity>> {
        let path = format!("{folder}/{NAME}");
        let Some(bytes) = store.read(&path)? else {
            return Ok(None);
        };
        let damaged = |error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("`{path}` is damaged: {error}"),
            )
        };
        JobIdentity::decode(&bytes).map(Some).map_err(damaged)
    }

    /// Stores the identity, unless there is one. Returns the one that counts.
    pub(super) fn propose(
        self,
        store: &Arc<dyn StateStore>,
        folder: &str,
    ) -> io::Result<JobIdentity> {
        if store.create(&format!("{folder}/{NAME}"), &self.encode())? {
            return Ok(self);
        }
        let stored = JobIdentity::read(&**store, folder)?;
        stored.ok_or_else(|| io::Error::other("the identity of the job was deleted"))
    }
}

#[cfg(test)]
mod tests {
    use highwater_connect::FolderStore;
    use highwater_env::SimDisk;

    use super::*;

    fn identity(id: u64) -> JobIdentity {
        JobIdentity {
            id,
            epoch: 4,
            since: Instant::from_ticks(5),
            starts: vec![Offset(6), Offset(0)],
            fingerprint: Fingerprint::of_words(&[("query", "select")]),
        }
    }

    // proves X1
    #[test]
    fn the_first_instance_decides() {
        let store = FolderStore::new(Arc::new(SimDisk::new(1)), "state");
        let store: Arc<dyn StateStore> = Arc::new(store);
        assert_eq!(JobIdentity::read(&*store, "job").unwrap(), None);
        assert_eq!(identity(1).propose(&store, "job").unwrap(), identity(1));
        assert_eq!(identity(2).propose(&store, "job").unwrap(), identity(1));
        let read = JobIdentity::read(&*store, "job").unwrap();
        assert_eq!(read, Some(identity(1)));
    }
}
