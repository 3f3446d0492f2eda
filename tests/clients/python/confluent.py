"""The checklist with confluent-kafka (librdkafka)."""

import threading

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from checklist import *

PLAIN = {"bootstrap.servers": BOOTSTRAP}
todo = Checklist("confluent")
admin = AdminClient(PLAIN)


def create(name, partitions=1):
    topic = todo.topic(name)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    return topic


def produce(topic, rows, conf={}, **more):
    """Sends (key, value, headers) and returns the messages as acknowledged."""
    producer = Producer({**PLAIN, "linger.ms": 20, "message.max.bytes": 2_000_000, **conf})
    acked = []

    def on_delivery(error, message):
        if error:
            raise KafkaException(error)
        acked.append(message)

    for key, value, headers in rows:
        producer.produce(topic, value, key, headers=headers, on_delivery=on_delivery, **more)
    left = producer.flush(WAIT_S)
    same(left, 0, "records not acknowledged")
    return acked


def numbers(first, count):
    return [(None, b"%d" % n, []) for n in range(first, first + count)]


def consumer(group="reader", **conf):
    conf = {key.replace("_", "."): value for key, value in conf.items()}
    return Consumer(
        {
            **PLAIN,
            "group.id": f"{group}-{RUN}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **conf,
        }
    )


def read(topic, partition=0, offset=OFFSET_BEGINNING, **conf):
    """Everything in a partition, from the offset to its end."""
    reader = consumer(**conf)
    reader.assign([TopicPartition(topic, partition, offset)])
    messages = []

    def step():
        message = reader.poll(1)
        if message is None:
            return False
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                return True
            raise KafkaException(message.error())
        messages.append(message)

    until("end of partition", step)
    reader.close()
    return messages


def rows_of(messages):
    return [(m.key(), m.value(), m.headers() or []) for m in messages]


def codec(name):
    topic = create(f"codec-{name}")
    produce(topic, records(), {"compression.type": name})
    messages = read(topic)
    same(rows_of(messages), records())
    same([m.offset() for m in messages], list(range(len(messages))), "offsets")


def append_time():
    topic = create("time")
    before = now_ms()
    produce(topic, records(), timestamp=1_000_000)
    stamps = [m.timestamp() for m in read(topic)]
    same({kind for kind, _ in stamps}, {2}, "timestamp type (2 is append time)")
    check_append_time([stamp for _, stamp in stamps], before, 1_000_000)


def large_record():
    topic = create("large")
    produce(topic, [(None, LARGE, [])] * 3)
    same([m.value() for m in read(topic)], [LARGE] * 3)


def empty_topic():
    topic = create("empty")
    same(rows_of(read(topic)), [])
    same(consumer().get_watermark_offsets(TopicPartition(topic, 0), WAIT_S), (0, 0), "watermarks")


def unknown_topic():
    reader = consumer(allow_auto_create_topics=False)
    reader.subscribe([todo.topic("nowhere")])
    message = until("an error", lambda: reader.poll(1))
    same(message.error().code(), KafkaError.UNKNOWN_TOPIC_OR_PART, "error")
    reader.close()
    gone = todo.topic("nowhere")
    fails("delete", ["UNKNOWN_TOPIC_OR_PART"], lambda: admin.delete_topics([gone])[gone].result(WAIT_S))


def offsets():
    topic = create("offsets")
    for n in range(3):
        before = now_ms()
        until("the clock moves", lambda: now_ms() > before + 5)
        produce(topic, numbers(n, 1))
    stamps = [m.timestamp()[1] for m in read(topic)]
    asks = [0, stamps[1], stamps[1] + 1, stamps[2] + 60_000]
    reader = consumer()
    found = [reader.offsets_for_times([TopicPartition(topic, 0, at)], WAIT_S)[0].offset for at in asks]
    same(found, [0, 1, 2, -1], "offsets by time")
    same(reader.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S), (0, 3), "beginning and end")
    same(rows_of(read(topic, offset=2)), [(None, b"2", [])], "from offset 2")


def partition_count(topic):
    description = admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
    return len(description.partitions)


def topics_admin():
    topic = create("admin", 3)
    assert topic in admin.list_topics(timeout=WAIT_S).topics, "the topic is not listed"
    same(partition_count(topic), 3, "partitions")
    fails("create again", ["TOPIC_ALREADY_EXISTS"], lambda: create("admin", 3))
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_S)
    until("five partitions", lambda: partition_count(topic) == 5)
    fewer = lambda: admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)
    fails("fewer partitions", ["INVALID_PARTITIONS"], fewer)
    admin.delete_topics([topic])[topic].result(WAIT_S)
    until("the topic is gone", lambda: topic not in admin.list_topics(timeout=WAIT_S).topics)


class Member:
    """A member of a group, on a thread of its own; what it is given is committed before it is given up."""

    def __init__(self, name, topic, group, seen, **conf):
        self.name, self.seen, self.count = name, seen, 0
        self.held, self.revoked = set(), 0
        self.error = None
        self.stopping = threading.Event()
        self.consumer = consumer(group, session_timeout_ms=10_000, heartbeat_interval_ms=500, **conf)
        self.consumer.subscribe([topic], on_assign=self.on_assign, on_revoke=self.on_revoke)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def on_assign(self, reader, partitions):
        self.held |= {p.partition for p in partitions}

    def on_revoke(self, reader, partitions):
        self.commit()
        self.held -= {p.partition for p in partitions}
        self.revoked += 1

    def commit(self):
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def run(self):
        try:
            while not self.stopping.is_set():
                message = self.consumer.poll(0.1)
                if message is None or (message.error() and message.error().code() == KafkaError._PARTITION_EOF):
                    continue
                if message.error():
                    raise KafkaException(message.error())
                self.count += 1
                self.seen.append((self.name, message.partition(), message.offset(), int(message.value())))
            self.commit()
        except Exception as error:
            self.error = error
        finally:
            self.consumer.close()

    def partitions(self):
        return set(self.held)

    def leave(self):
        self.stopping.set()
        self.thread.join(WAIT_S)
        if self.error:
            raise self.error


def group_rebalance(assignor="range"):
    topic = create(f"group-{assignor}", 4)
    seen, total, group = [], 0, f"group-{assignor}"
    conf = {"partition_assignment_strategy": assignor}

    def send(count):
        nonlocal total
        produce(topic, numbers(total, count), {"sticky.partitioning.linger.ms": 0})
        total += count

    first = Member("first", topic, group, seen, **conf)
    send(200)
    until("the first member reads all", lambda: len(seen) == total)
    second = Member("second", topic, group, seen, **conf)
    until("two partitions each", lambda: len(first.partitions()) == len(second.partitions()) == 2)
    same(first.partitions() | second.partitions(), {0, 1, 2, 3}, "partitions of both")
    send(200)
    until("both members read", lambda: len(seen) >= total)
    assert second.count > 0, "the second member read nothing"
    first.leave()
    until("four partitions for the second", lambda: len(second.partitions()) == 4)
    send(200)
    until("the second member reads the rest", lambda: len(seen) >= total)
    second.leave()
    check_group_log(seen, total)


def commit_resume():
    topic = create("resume")
    produce(topic, numbers(0, 10))

    def take(count):
        reader = consumer("resume")
        reader.subscribe([topic])
        got = []
        while len(got) < count:
            message = until("a record", lambda: reader.poll(1))
            if not message.error():
                got.append(int(message.value()))
        reader.commit(asynchronous=False)
        committed = reader.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset
        reader.close()
        return got, committed

    same(take(4), ([0, 1, 2, 3], 4), "first half and committed offset")
    same(take(6), ([4, 5, 6, 7, 8, 9], 10), "second half and committed offset")


def static_member():
    topic = create("static", 4)
    seen = []
    join = lambda name: Member(name, topic, "static", seen, group_instance_id=name)
    stays, leaves = join("stays"), join("leaves")
    until("two partitions each", lambda: len(stays.partitions()) == len(leaves.partitions()) == 2)
    had, revoked = leaves.partitions(), stays.revoked
    leaves.leave()
    back = join("leaves")
    until("the partitions come back", lambda: back.partitions() == had)
    produce(topic, numbers(0, 100), {"sticky.partitioning.linger.ms": 0})
    until("all is read", lambda: len(seen) >= 100)
    same(stays.revoked, revoked, "rebalances seen by the member that stayed")
    stays.leave(), back.leave()
    check_group_log(seen, 100)


def static_fence():
    topic = create("fence")
    holder = Member("a", topic, "fence", [], group_instance_id="one")
    until("a partition", holder.partitions)
    rival = Member("b", topic, "fence", [], group_instance_id="one")
    until("the first holder is fenced", lambda: holder.error)
    fails("the first holder", ["FENCED_INSTANCE_ID", "_FATAL"], holder.leave)
    until("the partition moves", rival.partitions)
    rival.leave()


def group_state(group):
    return admin.describe_consumer_groups([group])[group].result(WAIT_S)


def groups_admin():
    topic = create("groups")
    member = Member("m", topic, "groups", [])
    group = f"groups-{RUN}"
    until("a partition", member.partitions)
    produce(topic, numbers(0, 1))
    until("the record", lambda: member.count == 1)
    listed = lambda: group in {g.group_id for g in admin.list_consumer_groups().result(WAIT_S).valid}
    assert listed(), "the group is not listed"
    same((group_state(group).state.name, len(group_state(group).members)), ("STABLE", 1), "state and members")
    delete = lambda: admin.delete_consumer_groups([group])[group].result(WAIT_S)
    fails("delete a group in use", ["NON_EMPTY_GROUP"], delete)
    member.leave()
    same(group_state(group).state.name, "EMPTY", "state after the last member left")
    stored = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
    same([(p.topic, p.offset) for p in stored.topic_partitions], [(topic, 1)], "stored offsets")
    delete()
    assert not listed(), "the deleted group is listed"
    fails("delete it again", ["GROUP_ID_NOT_FOUND"], delete)


def idempotent_cut():
    need(PROXY, "proxy")
    topic = create("cut")
    before = cuts()
    conf = {"bootstrap.servers": PROXY, "enable.idempotence": True, "linger.ms": 2, "batch.num.messages": 10}
    acked = produce(topic, numbers(0, 500), conf)
    assert cuts() > before, "no connection was cut"
    messages = read(topic)
    same([int(m.value()) for m in messages], list(range(500)))
    same([m.offset() for m in acked], [m.offset() for m in messages], "acknowledged offsets")


def transactional(name):
    producer = Producer({**PLAIN, "transactional.id": todo.topic(name), "transaction.timeout.ms": 30_000})
    producer.init_transactions(WAIT_S)
    return producer


def txn():
    topic = create("txn")
    producer = transactional("txn")
    for values, commit in [([b"a", b"b"], True), ([b"x", b"y"], False), ([b"c"], True)]:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(WAIT_S)
        producer.commit_transaction(WAIT_S) if commit else producer.abort_transaction(WAIT_S)
    values = lambda level: [m.value() for m in read(topic, isolation_level=level)]
    same(values("read_committed"), [b"a", b"b", b"c"], "read_committed")
    same(values("read_uncommitted"), [b"a", b"b", b"x", b"y", b"c"], "read_uncommitted")


def txn_open():
    """What is not committed yet is not seen, nor what comes after it."""
    topic = create("open")
    producer = transactional("open")
    producer.begin_transaction()
    producer.produce(topic, b"pending")
    producer.flush(WAIT_S)
    produce(topic, [(None, b"after", [])])
    values = lambda: [m.value() for m in read(topic, isolation_level="read_committed")]
    same(values(), [], "while the transaction is open")
    producer.commit_transaction(WAIT_S)
    until("both records", lambda: values() == [b"pending", b"after"])


def txn_fence():
    topic = create("zombie")
    zombie = transactional("zombie")
    zombie.begin_transaction()
    zombie.produce(topic, b"from the dead")
    zombie.flush(WAIT_S)
    heir = transactional("zombie")
    fails("commit of a fenced producer", ["FENCED", "INVALID_PRODUCER_EPOCH"], lambda: zombie.commit_transaction(WAIT_S))
    heir.begin_transaction()
    heir.produce(topic, b"alive")
    heir.commit_transaction(WAIT_S)
    same([m.value() for m in read(topic, isolation_level="read_committed")], [b"alive"])


def txn_offsets():
    source, target = create("source"), create("target")
    produce(source, numbers(0, 20))
    producer = transactional("offsets")
    reader = consumer("transform", isolation_level="read_committed")
    reader.subscribe([source])

    def transform(count, commit):
        done = 0
        producer.begin_transaction()
        while done < count:
            message = until("a record", lambda: reader.poll(1))
            if message.error():
                continue
            producer.produce(target, b"%d" % (int(message.value()) * 2))
            done += 1
        position = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S) if commit else producer.abort_transaction(WAIT_S)

    committed = lambda: reader.committed([TopicPartition(source, 0)], WAIT_S)[0].offset
    transform(8, True)
    same(committed(), 8, "offset after the commit")
    transform(5, False)
    same(committed(), 8, "offset after the abort")
    reader.seek(TopicPartition(source, 0, 8))
    transform(12, True)
    same(committed(), 20, "offset at the end")
    got = [int(m.value()) for m in read(target, isolation_level="read_committed")]
    same(got, [2 * n for n in range(20)], "doubled numbers")
    reader.close()


def sasl(password):
    return {
        "bootstrap.servers": need(SASL, "SASL listener"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": password,
    }


def round_trip(name, conf):
    topic = create(name)
    produce(topic, records(), conf)
    same(rows_of(read(topic, **{key.replace(".", "_"): value for key, value in conf.items()})), records())


def sasl_ok():
    round_trip("sasl", sasl(PASSWORD))


def sasl_wrong():
    errors = []
    client = Producer({**sasl("wrong"), "error_cb": errors.append})
    client.produce(todo.topic("sasl-wrong"), b"never")
    until("an error", lambda: client.poll(0.1) or any(e.code() == KafkaError._AUTHENTICATION for e in errors))
    client.purge()


def tls():
    need(TLS, "TLS listener")
    conf = {**sasl(PASSWORD), "bootstrap.servers": TLS, "security.protocol": "SASL_SSL"}
    round_trip("tls", {**conf, "ssl.ca.location": CA})
    errors = []
    client = Producer({**conf, "error_cb": errors.append})
    until("a refusal without the authority", lambda: client.poll(0.1) or any(e.code() == KafkaError._SSL for e in errors))


for name in CODECS:
    todo.report(f"codec_{name}", lambda: codec(name))
for check in [append_time, large_record, empty_topic, unknown_topic, offsets, topics_admin, group_rebalance]:
    todo.report(check.__name__, check)
todo.report("group_cooperative", lambda: group_rebalance("cooperative-sticky"))
for check in [commit_resume, static_member, static_fence, groups_admin, idempotent_cut]:
    todo.report(check.__name__, check)
for check in [txn, txn_open, txn_fence, txn_offsets, sasl_ok, sasl_wrong, tls]:
    todo.report(check.__name__, check)
todo.end()
