"""Kafka requests as bytes, for clients that no library would be: repeated names, broken frames, unread answers."""

import struct

METADATA, DESCRIBE_GROUPS, DESCRIBE_CONFIGS = 3, 15, 32
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


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
