//! The bytes of one simulated file: the durable ones, the current ones, and the changes between them.

use crate::random::Random;

/// A disk writes a sector atomically.
const SECTOR: usize = 512;

/// Further changes are written back in the background, as a kernel does.
const CHANGES_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Contents {
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
    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn write(&mut self, position: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let position = position as usize;
            self.change(Change::Write { position, bytes });
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
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

    pub(super) fn flip(&mut self, position: usize, mask: u8) {
        for bytes in [&mut self.durable, &mut self.current] {
            if let Some(byte) = bytes.get_mut(position) {
                *byte ^= mask;
            }
        }
    }

    /// Writes only the changes since the last sync: bytes lost by an earlier failed sync stay lost.
    pub(super) fn sync(&mut self) {
        for change in self.changes.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Some sectors are written. The others are lost, but may stay visible in the page cache.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.durable = self.torn(random);
        self.changes.clear();
        if random.below(2) == 0 {
            self.current = self.durable.clone();
        }
    }

    pub(super) fn crash(&mut self, random: &mut Random) {
        self.durable = self.torn(random);
        self.changes.clear();
        self.current = self.durable.clone();
    }

    /// A possible state of the disk before a sync: each sector, and the length, as it was after some change, chosen
    /// independently.
    fn torn(&self, random: &mut Random) -> Vec<u8> {
        let versions = self.versions();
        let last = versions.len() - 1;
        let mode = random.below(4);
        let pick = |random: &mut Random| match mode {
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
                fill_random(&mut sector[kept..], random);
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

/// Stale bytes of another file.
fn fill_random(bytes: &mut [u8], random: &mut Random) {
    for byte in bytes {
        *byte = random.next_u64() as u8;
    }
}
