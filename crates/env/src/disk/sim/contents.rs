//! The bytes of one simulated file: what is durable, what a reader sees, and the changes between.

use crate::random::Random;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Changes beyond these are written in the background, as a kernel would.
const CHANGES_MAX: usize = 64;

#[derive(Default)]
pub struct Contents {
    durable: Vec<u8>,
    current: Vec<u8>,
    changes: Vec<Change>,
}

enum Change {
    Write { position: usize, bytes: Vec<u8> },
    Len(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Len(len) => to.resize(*len, 0),
            Change::Write { position, bytes } => {
                let end = position + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*position..end].copy_from_slice(bytes);
            }
        }
    }
}

impl Contents {
    pub fn current(&self) -> &[u8] {
        &self.current
    }

    pub fn write(&mut self, position: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let position = position as usize;
            self.change(Change::Write { position, bytes });
        }
    }

    pub fn set_len(&mut self, len: u64) {
        self.change(Change::Len(len as usize));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.changes.push(change);
        if self.changes.len() > CHANGES_MAX {
            for old in self.changes.drain(..CHANGES_MAX / 2) {
                old.apply(&mut self.durable);
            }
        }
    }

    pub fn flip(&mut self, position: usize, mask: u8) {
        for bytes in [&mut self.durable, &mut self.current] {
            if let Some(byte) = bytes.get_mut(position) {
                *byte ^= mask;
            }
        }
    }

    /// Only what changed is written: what an earlier failed sync lost stays lost.
    pub fn sync(&mut self) {
        for change in self.changes.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Some sectors are written, the others are forgotten but still in memory, until the memory is
    /// wanted for something else.
    pub fn fail_sync(&mut self, random: &mut Random) {
        self.durable = self.torn(random);
        self.changes.clear();
        if random.below(2) == 0 {
            self.current = self.durable.clone();
        }
    }

    pub fn crash(&mut self, random: &mut Random) {
        self.durable = self.torn(random);
        self.changes.clear();
        self.current = self.durable.clone();
    }

    /// What may be on the disk before a sync: every sector as it was after any one of the changes,
    /// and the length as it was after any one of them, each chosen for itself.
    fn torn(&self, random: &mut Random) -> Vec<u8> {
        let versions = self.versions();
        let last = versions.len() - 1;
        let mood = random.below(4);
        let pick = |random: &mut Random| match mood {
            0 => 0,
            1 => last,
            _ => random.below(versions.len() as u64) as usize,
        };
        let mut torn = vec![0; versions[pick(random)].len()];
        for (number, sector) in torn.chunks_mut(SECTOR).enumerate() {
            let old = versions[pick(random)]
                .get(number * SECTOR..)
                .unwrap_or_default();
            let kept = old.len().min(sector.len());
            sector[..kept].copy_from_slice(&old[..kept]);
            if kept < sector.len() && random.below(8) == 0 {
                fill(&mut sector[kept..], random);
            }
        }
        torn
    }

    fn versions(&self) -> Vec<Vec<u8>> {
        let mut versions = vec![self.durable.clone()];
        for change in &self.changes {
            let mut next = versions[versions.len() - 1].clone();
            change.apply(&mut next);
            versions.push(next);
        }
        versions
    }
}

/// Bytes that belonged to somebody else before.
fn fill(bytes: &mut [u8], random: &mut Random) {
    for byte in bytes {
        *byte = random.next_u64() as u8;
    }
}
