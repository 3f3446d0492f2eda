"""Kafka requests as bytes, for clients that no library would be: repeated names, broken frames, unread answers."""

import struct

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, JOIN_GROUP = 0, 1, 3, 8, 11
DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE = 15, 16, 17
INIT_PRODUCER_ID, DESCRIBE_CONFIGS, SASL_AUTHENTICATE, DELETE_GROUPS = 22, 32, 36, 42


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


def strings(texts):
    return struct.pack(">i", len(texts)) + b"".join(string(text) for text in texts)


def frame(api, version, body, correlation=1):
    """A request with a header of version 1, which every API here has in these versions."""
    payload = struct.pack(">hhi", api, version, correlation) + string("hostile") + body
    return struct.pack(">i", len(payload)) + payload


def metadata(names):
    return frame(METADATA, 1, strings(names))


def describe_groups(names):
    return frame(DESCRIBE_GROUPS, 0, strings(names))


def describe_configs(topics):
    """All settings of each topic, once for each time that it is named."""
    topic = 2
    resources = b"".join(struct.pack(">b", topic) + string(name) + struct.pack(">i", -1) for name in topics)
    return frame(DESCRIBE_CONFIGS, 1, struct.pack(">i", len(topics)) + resources + b"\0")


def login(user, password):
    """The frames of a login with SASL PLAIN; each has an answer."""
    token = f"\0{user}\0{password}".encode()
    handshake = frame(SASL_HANDSHAKE, 1, string("PLAIN"))
    authenticate = frame(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    return [handshake, authenticate]


def data(content):
    return struct.pack(">i", len(content)) + content


def offset_commit(group, topic, offset):
    """A position that a client without a membership stores."""
    partition = struct.pack(">iq", 0, offset) + string("")
    topics = struct.pack(">i", 1) + string(topic) + struct.pack(">i", 1) + partition
    return frame(OFFSET_COMMIT, 2, string(group) + struct.pack(">i", -1) + string("") + struct.pack(">q", -1) + topics)


def join_group(group, metadata):
    protocols = struct.pack(">i", 1) + string("range") + data(metadata)
    body = string(group) + struct.pack(">ii", 300_000, 300_000) + string("") + string("consumer") + protocols
    return frame(JOIN_GROUP, 1, body)


def list_groups():
    return frame(LIST_GROUPS, 0, b"")


def delete_groups(groups):
    return frame(DELETE_GROUPS, 0, strings(groups))


def init_producer_id(transactional_id=None):
    name = struct.pack(">h", -1) if transactional_id is None else string(transactional_id)
    return frame(INIT_PRODUCER_ID, 0, name + struct.pack(">i", 60_000))


def fetch(topic, partition=0):
    partitions = struct.pack(">i", 1) + struct.pack(">iqi", partition, 0, 1 << 20)
    topics = struct.pack(">i", 1) + string(topic) + partitions
    return frame(FETCH, 4, struct.pack(">iiiib", -1, 100, 0, 1 << 20, 0) + topics)


def produce(topic, batch):
    partitions = struct.pack(">i", 1) + struct.pack(">i", 0) + data(batch)
    topics = struct.pack(">i", 1) + string(topic) + partitions
    return frame(PRODUCE, 3, struct.pack(">hhi", -1, -1, 10_000) + topics)


def varint(number):
    """A zigzag number of variable length."""
    number = (number << 1) ^ (number >> 63)
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def record(value):
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def record_batch(payload, count, codec=0):
    """A batch of version 2 with these packed records, whatever it claims to be."""
    after_crc = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + payload
    body = struct.pack(">ibI", -1, 2, crc32c(after_crc)) + after_crc
    return struct.pack(">qi", 0, len(body)) + body


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC32C = crc32c_table()


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc = CRC32C[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
