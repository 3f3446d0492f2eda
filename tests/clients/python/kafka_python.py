"""The checklist with kafka-python."""

import ssl

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import OffsetAndMetadata

from scenarios import *

PLAIN = {"bootstrap_servers": BOOTSTRAP}


def consumer(group=None, security=None, **conf):
    base = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50}
    return KafkaConsumer(
        group_id=group, **{**PLAIN, **base, "max_partition_fetch_bytes": 4_000_000, **(security or {}), **conf}
    )


def subscribe(consumer, topic, listener=None):
    """Before the first poll the client has to know the topic. If it learns of it as the leader of a group, it joins once
    more, and when a poll ends in the middle of that, this version of the client forgets what it was doing."""
    consumer.subscribe([topic], listener=listener)
    until("partitions of the topic", lambda: consumer.partitions_for_topic(topic))


def flat(batches):
    return [record for records in batches.values() for record in records]


class PythonMember(Member, AsyncConsumerRebalanceListener):
    def __init__(self, name, topic, group, seen, instance=None, assignor=None):
        super().__init__(name, seen)
        self.next = {}
        conf = {"group_instance_id": instance} if instance else {}
        strategy = CooperativeStickyAssignor if assignor == "cooperative" else RangePartitionAssignor
        times = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}
        self.consumer = consumer(group, partition_assignment_strategy=[strategy], **times, **conf)
        subscribe(self.consumer, topic, listener=self)
        self.thread.start()

    async def on_partitions_assigned(self, assigned):
        self.gained(p.partition for p in assigned)

    async def on_partitions_revoked(self, revoked):
        if revoked:
            await self.consumer.commit_async(self.processed(revoked))
            self.lost(p.partition for p in revoked)

    def poll(self):
        found = flat(self.consumer.poll(100))
        self.next.update({TopicPartition(r.topic, r.partition): r.offset + 1 for r in found})
        return [(r.partition, r.offset, r.value) for r in found]

    def processed(self, partitions):
        """Named one by one: in a cooperative rebalance the client has already forgotten what it must give up."""
        return {p: OffsetAndMetadata(self.next[p], "", -1) for p in partitions if p in self.next}

    def commit(self):
        self.consumer.commit(self.processed(self.consumer.assignment()))

    def close(self):
        self.consumer.close(autocommit=False)


class Reader:
    def __init__(self, topic, group):
        self.group = group
        self.partition = TopicPartition(topic, 0)
        self.consumer = consumer(group, isolation_level="read_committed")
        subscribe(self.consumer, topic)

    def take(self, count):
        got = []
        until("records", lambda: got.extend(flat(self.consumer.poll(500, count - len(got)))) or len(got) == count)
        return [record.value for record in got]

    def committed(self):
        return self.consumer.committed(self.partition)

    def seek(self, offset):
        self.consumer.seek(self.partition, offset)

    def close(self):
        self.consumer.close()


class Transactional:
    def __init__(self, name, bootstrap=BOOTSTRAP):
        conf = {"transactional_id": name, "transaction_timeout_ms": 30_000}
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, **conf)
        self.producer.init_transactions()

    def begin(self):
        self.producer.begin_transaction()

    def send(self, topic, *values):
        for future in [self.producer.send(topic, value) for value in values]:
            future.get(WAIT_S)

    def send_offsets(self, reader):
        offsets = {reader.partition: OffsetAndMetadata(reader.consumer.position(reader.partition), "", -1)}
        self.producer.send_offsets_to_transaction(offsets, reader.consumer.group_metadata())

    def commit(self):
        self.producer.commit_transaction()

    def abort(self):
        self.producer.abort_transaction()


class TokenProvider(AbstractTokenProvider):
    def __init__(self, token):
        self.value = token

    def token(self):
        return self.value


class KafkaPython:
    name = "kafka-python"
    NULL_HEADERS = False
    UNKNOWN_TOPIC = ["UnknownTopicOrPartitionError"]
    TOPIC_EXISTS = ["TopicAlreadyExistsError"]
    BAD_PARTITIONS = ["InvalidPartitionsError"]
    GROUP_IN_USE = ["NonEmptyGroupError"]
    NO_SUCH_GROUP = ["GroupIdNotFoundError"]
    FENCED_INSTANCE = ["FencedInstanceIdError"]
    FENCED_PRODUCER = ["Fenced", "InvalidProducerEpoch"]

    member = PythonMember
    reader = Reader
    transactional = Transactional

    def __init__(self):
        self.admin = KafkaAdminClient(**PLAIN)

    def produce(
        self, topic, rows, codec="none", timestamp=None, spread=0, idempotent=False, bootstrap=None, security=None
    ):
        conf = {**PLAIN, "linger_ms": 20, "max_request_size": 2_000_000, "acks": "all", **(security or {})}
        conf["compression_type"] = None if codec == "none" else codec
        if idempotent:
            conf.update(enable_idempotence=True, linger_ms=2, batch_size=200)
        if bootstrap:
            conf["bootstrap_servers"] = bootstrap
        producer = KafkaProducer(**conf)
        futures = [
            producer.send(topic, value, key, headers, n % spread if spread else 0, timestamp)
            for n, (key, value, headers) in enumerate(rows)
        ]
        acked = [future.get(WAIT_S).offset for future in futures]
        producer.close()
        return acked

    def read(self, topic, offset=0, committed=False, security=None):
        level = "read_committed" if committed else "read_uncommitted"
        reader = consumer(security=security, isolation_level=level)
        partition = TopicPartition(topic, 0)
        reader.assign([partition])
        reader.seek(partition, offset)
        end = reader.end_offsets([partition])[partition]
        found = []
        until("end of partition", lambda: found.extend(flat(reader.poll(100))) or reader.position(partition) >= end)
        reader.close()
        return [Record(r.key, r.value, list(r.headers), r.offset, r.timestamp, r.timestamp_type == 1) for r in found]

    def take(self, topic, group, count):
        reader = Reader(topic, group)
        got = [int(value) for value in reader.take(count)]
        reader.consumer.commit()
        committed = reader.committed()
        reader.close()
        return got, committed

    def bounds(self, topic):
        partition = TopicPartition(topic, 0)
        reader = consumer()
        return reader.beginning_offsets([partition])[partition], reader.end_offsets([partition])[partition]

    def offset_at(self, topic, at_ms):
        partition = TopicPartition(topic, 0)
        found = consumer().offsets_for_times({partition: at_ms})[partition]
        return found.offset if found else None

    def read_unknown(self, topic):
        reader = consumer(allow_auto_create_topics=False)
        same(reader.partitions_for_topic(topic) or set(), set(), "partitions of an unknown topic")
        reader.close()

    def create_topic(self, topic, partitions, configs=None):
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
        self.admin.create_topics({topic: wanted})

    def delete_topic(self, topic):
        self.admin.delete_topics([topic])

    def list_topics(self):
        return set(self.admin.list_topics())

    def partition_count(self, topic):
        return len(self.admin.describe_topics([topic])[0]["partitions"])

    def create_partitions(self, topic, count):
        self.admin.create_partitions({topic: count})

    def list_groups(self):
        return {group["group_id"] for group in self.admin.list_groups()}

    def group_state(self, group):
        found = self.admin.describe_groups([group])[group]
        return found["group_state"], len(found["members"])

    def group_offsets(self, group):
        stored = self.admin.list_group_offsets(group)[group]
        return {(p.topic, p.partition): at.offset for p, at in stored.items()}

    def delete_group(self, group):
        answer = self.admin.delete_groups([group])[group]
        if answer != "OK":
            raise AssertionError(answer)

    def sasl(self, bootstrap, password, ca=None, mechanism="PLAIN"):
        conf = {
            "bootstrap_servers": bootstrap,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }
        if ca:
            return {**conf, "security_protocol": "SASL_SSL", "ssl_cafile": ca}
        return {**conf, "security_protocol": "SASL_PLAINTEXT"}

    def oauth(self, bootstrap, token):
        conf = {"bootstrap_servers": bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        return {**conf, "sasl_oauth_token_provider": TokenProvider(token)}

    def mtls(self, bootstrap, certificate=None, key=None):
        conf = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_cafile": CA}
        return {**conf, "ssl_certfile": certificate, "ssl_keyfile": key}

    def shut_out(self, security):
        connect = lambda: KafkaAdminClient(**security, bootstrap_timeout_ms=3000)
        fails("without a certificate of the authority", ["SSL", "Unable to bootstrap"], connect)

    def refused(self, security):
        # It tries again until its time is up, and then does not say why.
        connect = lambda: KafkaAdminClient(**security, bootstrap_timeout_ms=3000)
        fails("wrong password", ["AuthenticationFailed", "Unable to bootstrap"], connect)

    def distrusts(self, bootstrap):
        conf = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
        connect = lambda: KafkaAdminClient(**conf, bootstrap_timeout_ms=3000)
        fails("without the authority", ["SSL", "Unable to bootstrap"], connect)


Scenarios(KafkaPython()).run()
