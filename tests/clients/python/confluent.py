"""The checklist with confluent-kafka (librdkafka)."""

import subprocess

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from scenarios import *

PLAIN = {"bootstrap.servers": BOOTSTRAP}


def consumer(group="reader", security=None, **conf):
    conf = {key.replace("_", "."): value for key, value in conf.items()}
    return Consumer(
        {
            **PLAIN,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **(security or {}),
            **conf,
        }
    )


def poll(reader, wait_s=1):
    """What has come: the next message in a list, or an empty list; None at the end of a partition."""
    message = reader.poll(wait_s)
    if message is None or not message.error():
        return [] if message is None else [message]
    if message.error().code() == KafkaError._PARTITION_EOF:
        return None
    raise KafkaException(message.error())


def next_value(reader):
    return until("a record", lambda: poll(reader))[0].value()


def commit(reader):
    try:
        reader.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            raise


class ConfluentMember(Member):
    def __init__(self, name, topic, group, seen, instance=None, assignor=None):
        super().__init__(name, seen)
        conf = {"group_instance_id": instance} if instance else {}
        if assignor == "consumer":
            conf["group_protocol"] = "consumer"
        else:
            strategy = {"cooperative": "cooperative-sticky"}.get(assignor, "range")
            conf |= {"partition_assignment_strategy": strategy, "session_timeout_ms": 10_000}
            conf["heartbeat_interval_ms"] = 500
        self.consumer = consumer(group, **conf)
        self.consumer.subscribe([topic], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost)
        self.thread.start()

    def on_assign(self, _, partitions):
        self.gained(p.partition for p in partitions)

    def on_revoke(self, _, partitions):
        self.commit()
        self.lost(p.partition for p in partitions)

    def on_lost(self, _, partitions):
        self.lost(p.partition for p in partitions)

    def poll(self):
        return [(m.partition(), m.offset(), m.value()) for m in poll(self.consumer, 0.1) or []]

    def commit(self):
        commit(self.consumer)

    def close(self):
        self.consumer.close()


def killable(topic, group):
    """A member in a process of its own, once it has partitions."""
    program = (
        "import confluent_kafka as k, sys\n"
        "c = k.Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2], 'group.protocol': 'consumer'})\n"
        "c.subscribe([sys.argv[3]], on_assign=lambda c, p: print(len(p), flush=True))\n"
        "while True: c.poll(0.1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, BOOTSTRAP, group, topic], stdout=subprocess.PIPE, text=True)
    until("the member has partitions", lambda: int(process.stdout.readline()) > 0)
    return process


class Reader:
    """Reads with a group and can commit in a transaction."""

    def __init__(self, topic, group):
        self.partition = TopicPartition(topic, 0)
        self.consumer = consumer(group, isolation_level="read_committed")
        self.consumer.subscribe([topic])

    def take(self, count):
        return [next_value(self.consumer) for _ in range(count)]

    def committed(self):
        return self.consumer.committed([self.partition], WAIT_S)[0].offset

    def seek(self, offset):
        self.consumer.seek(TopicPartition(self.partition.topic, 0, offset))

    def close(self):
        self.consumer.close()


class Transactional:
    def __init__(self, name, bootstrap=BOOTSTRAP):
        conf = {"transactional.id": name, "transaction.timeout.ms": 30_000}
        self.producer = Producer({"bootstrap.servers": bootstrap, **conf})
        self.producer.init_transactions(WAIT_S)

    def begin(self):
        self.producer.begin_transaction()

    def send(self, topic, *values):
        for value in values:
            self.producer.produce(topic, value)
        self.producer.flush(WAIT_S)

    def send_offsets(self, reader):
        position = reader.consumer.position(reader.consumer.assignment())
        self.producer.send_offsets_to_transaction(position, reader.consumer.consumer_group_metadata(), WAIT_S)

    def commit(self):
        self.producer.commit_transaction(WAIT_S)

    def abort(self):
        self.producer.abort_transaction(WAIT_S)


class Confluent:
    name = "confluent"
    CONSUMER_PROTOCOL = True
    UNKNOWN_TOPIC = ["UNKNOWN_TOPIC_OR_PART"]
    TOPIC_EXISTS = ["TOPIC_ALREADY_EXISTS"]
    BAD_PARTITIONS = ["INVALID_PARTITIONS"]
    GROUP_IN_USE = ["NON_EMPTY_GROUP"]
    NO_SUCH_GROUP = ["GROUP_ID_NOT_FOUND"]
    FENCED_INSTANCE = ["FENCED_INSTANCE_ID", "_FATAL"]
    FENCED_PRODUCER = ["FENCED", "INVALID_PRODUCER_EPOCH"]

    member = ConfluentMember
    reader = Reader
    transactional = Transactional
    killable = staticmethod(killable)

    def __init__(self):
        self.admin = AdminClient(PLAIN)

    def produce(
        self, topic, rows, codec="none", timestamp=0, spread=0, idempotent=False, bootstrap=None, security=None
    ):
        conf = {**PLAIN, "linger.ms": 20, "message.max.bytes": 2_000_000, "compression.type": codec, **(security or {})}
        if idempotent:
            conf.update({"enable.idempotence": True, "linger.ms": 2, "batch.num.messages": 10})
        if bootstrap:
            conf["bootstrap.servers"] = bootstrap
        producer = Producer(conf)
        acked = []

        def on_delivery(error, message):
            if error:
                raise KafkaException(error)
            acked.append(message.offset())

        for n, (key, value, headers) in enumerate(rows):
            partition = n % spread if spread else 0
            producer.produce(
                topic, value, key, partition, on_delivery=on_delivery, timestamp=timestamp, headers=headers
            )
        same(producer.flush(WAIT_S), 0, "records not acknowledged")
        return acked

    def read(self, topic, offset=0, committed=False, security=None):
        level = "read_committed" if committed else "read_uncommitted"
        reader = consumer(security=security, isolation_level=level)
        reader.assign([TopicPartition(topic, 0, offset)])
        found = []

        def step():
            messages = poll(reader)
            for message in messages or []:
                kind, stamp = message.timestamp()
                headers = message.headers() or []
                found.append(Record(message.key(), message.value(), headers, message.offset(), stamp, kind == 2))
            return messages is None

        until("end of partition", step)
        reader.close()
        return found

    def take(self, topic, group, count, protocol="classic"):
        reader = consumer(group, group_protocol=protocol)
        reader.subscribe([topic])
        got = [int(next_value(reader)) for _ in range(count)]
        reader.commit(asynchronous=False)
        committed = reader.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset
        reader.close()
        return got, committed

    def group_type(self, group):
        found = self.admin.describe_consumer_groups([group])[group].result(WAIT_S)
        return found.type.name.capitalize(), found.state.name.capitalize(), len(found.members)

    def bounds(self, topic):
        return consumer().get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)

    def offset_at(self, topic, at_ms):
        offset = consumer().offsets_for_times([TopicPartition(topic, 0, at_ms)], WAIT_S)[0].offset
        return offset if offset >= 0 else None

    def read_unknown(self, topic):
        reader = consumer(allow_auto_create_topics=False)
        reader.subscribe([topic])
        fails("subscribe", self.UNKNOWN_TOPIC, lambda: until("an error", lambda: poll(reader)))
        reader.close()

    def create_topic(self, topic, partitions, configs=None):
        wanted = NewTopic(topic, partitions, 1, config=configs or {})
        self.admin.create_topics([wanted])[topic].result(WAIT_S)

    def delete_topic(self, topic):
        self.admin.delete_topics([topic])[topic].result(WAIT_S)

    def list_topics(self):
        return set(self.admin.list_topics(timeout=WAIT_S).topics)

    def partition_count(self, topic):
        return len(self.admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S).partitions)

    def create_partitions(self, topic, count):
        self.admin.create_partitions([NewPartitions(topic, count)])[topic].result(WAIT_S)

    def list_groups(self):
        return {group.group_id for group in self.admin.list_consumer_groups().result(WAIT_S).valid}

    def group_state(self, group):
        found = self.admin.describe_consumer_groups([group])[group].result(WAIT_S)
        return found.state.name.capitalize(), len(found.members)

    def group_offsets(self, group):
        stored = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
        return {(p.topic, p.partition): p.offset for p in stored.topic_partitions}

    def delete_group(self, group):
        self.admin.delete_consumer_groups([group])[group].result(WAIT_S)

    def sasl(self, bootstrap, password, ca=None, mechanism="PLAIN"):
        conf = {
            "bootstrap.servers": bootstrap,
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
        }
        if ca:
            return {**conf, "security.protocol": "SASL_SSL", "ssl.ca.location": ca}
        return {**conf, "security.protocol": "SASL_PLAINTEXT"}

    def oauth(self, bootstrap, token):
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 3600),
        }

    def mtls(self, bootstrap, certificate=None, key=None):
        conf = {"bootstrap.servers": bootstrap, "security.protocol": "SSL", "ssl.ca.location": CA}
        if certificate:
            conf |= {"ssl.certificate.location": certificate, "ssl.key.location": key}
        return conf

    def refused(self, security, *codes):
        codes = codes or [KafkaError._AUTHENTICATION]
        errors = []
        client = AdminClient({**security, "error_cb": errors.append})
        until("an error", lambda: client.poll(0.1) or any(error.code() in codes for error in errors))

    def shut_out(self, security):
        # By TLS 1.3 the server refuses a certificate when the client has finished its part, and thinks that it is connected.
        self.refused(security, KafkaError._SSL, KafkaError._TRANSPORT)

    def distrusts(self, bootstrap):
        self.refused({"bootstrap.servers": bootstrap, "security.protocol": "SSL"}, KafkaError._SSL)


Scenarios(Confluent()).run()
