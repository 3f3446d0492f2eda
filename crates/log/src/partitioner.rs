//! The partition of a key, as the default partitioners of the Java client and kafka-python compute it, so that a key
//! goes to the same partition from every client; and the hub of a key where several hubs share a name.

/// The partition of a key. `partitions` must not be 0.
pub fn partition_for_key(key: &[u8], partitions: u32) -> u32 {
    assert!(partitions > 0, "a hub has at least one partition");
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// The hub of a key, of `members` hubs. `members` must not be 0.
///
/// The hash is mixed once more (the finalizer of MurmurHash3): hubs chosen by the partition hash itself would see only
/// some of its values and fill only some of their partitions.
pub fn shard_for_key(key: &[u8], members: u32) -> u32 {
    assert!(members > 0, "a name leads to at least one hub");
    let mut hash = murmur2(key);
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^= hash >> 16;
    (hash & 0x7fff_ffff) % members
}

/// MurmurHash2, 32 bits, with Kafka's seed.
fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const FACTOR: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ key.len() as u32;
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(FACTOR);
        let mixed = (word ^ word >> 24).wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR) ^ mixed;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (i, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * i);
        }
        hash = hash.wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(FACTOR);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves L1
    #[test]
    fn keys_hash_as_in_apache_kafka() {
        // From the tests of Apache Kafka's client.
        for (key, hash) in [
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58897971,
            ),
            ("abc", 479470107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }

    #[test]
    fn keys_go_where_the_java_client_sends_them() {
        // From `BuiltInPartitioner.partitionForKey` of Apache Kafka 4.1.
        for (key, partition) in [
            ("", 681),
            ("a", 524),
            ("ab", 434),
            ("abc", 107),
            ("abcd", 100),
            ("ключ", 24),
            ("toll-booth-17", 77),
        ] {
            assert_eq!(partition_for_key(key.as_bytes(), 1000), partition, "{key}");
        }
        assert_eq!(partition_for_key(b"foobar", 1), 0);
    }

    // proves L7
    #[test]
    fn a_key_stays_with_its_hub() {
        // Computed in Python from the description in docs/http.md. If a value changes, keys move.
        let hubs = ["", "a", "abc", "ключ", "toll-booth-17"]
            .map(|key| shard_for_key(key.as_bytes(), 1000));
        assert_eq!(hubs, [64, 227, 160, 644, 151]);
        assert_eq!(shard_for_key(b"foobar", 1), 0);
    }

    // proves L7
    #[test]
    fn keys_fill_every_partition_of_every_hub_alike() {
        let (members, partitions, keys) = (4, 4, 64_000);
        let mut counts = [0; 16];
        for key in 0..keys {
            let key = format!("device-{key}");
            let member = shard_for_key(key.as_bytes(), members);
            let partition = partition_for_key(key.as_bytes(), partitions);
            counts[(member * partitions + partition) as usize] += 1;
        }
        let share = keys / 16;
        let (low, high) = (share * 9 / 10, share * 11 / 10);
        assert!(
            counts.iter().all(|count| (low..high).contains(count)),
            "{counts:?}"
        );
    }
}
