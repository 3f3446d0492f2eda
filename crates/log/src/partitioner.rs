//! Which partition a key belongs to: the same as with the default partitioner of the Java client and
//! kafka-python, so that a key goes to one place whoever sends it.

/// The partition of a key. `partitions` must not be 0.
pub fn partition_for_key(key: &[u8], partitions: u32) -> u32 {
    assert!(partitions > 0, "a hub has at least one partition");
    (murmur2(key) & 0x7fff_ffff) % partitions
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
}
