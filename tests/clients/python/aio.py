"""The checklist with aiokafka. Its event loop runs on a thread of its own; `wait` hands it work and waits."""

import asyncio
import ssl

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import for_code

from scenarios import *

PLAIN = {"bootstrap_servers": BOOTSTRAP}
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


def wait(work):
    return asyncio.run_coroutine_threadsafe(work, loop).result(2 * WAIT_S)


async def started(kind, *args, **conf):
    client = kind(*args, **conf)
    try:
        await client.start()
    except BaseException:
        await (client.close if kind is AIOKafkaAdminClient else client.stop)()
        raise
    return client


async def consumer(group=None, security=None, **conf):
    base = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50}
    conf = {**PLAIN, **base, "max_partition_fetch_bytes": 4_000_000, **(security or {}), **conf}
    return await started(AIOKafkaConsumer, group_id=group, **conf)


def flat(batches):
    return [record for records in batches.values() for record in records]


def check(errors):
    for name, code, *_ in errors:
        if code:
            raise for_code(code)(name)


class TokenProvider(AbstractTokenProvider):
    def __init__(self, token):
        self.value = token

    async def token(self):
        return self.value


class AioMember(Member, ConsumerRebalanceListener):
    def __init__(self, name, topic, group, seen, instance=None, assignor=None):
        if assignor == "cooperative":
            raise Skip("no cooperative assignor")
        super().__init__(name, seen)
        conf = {"group_instance_id": instance} if instance else {}
        times = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}
        self.consumer = wait(consumer(group, partition_assignment_strategy=[RangePartitionAssignor], **times, **conf))
        self.consumer.subscribe([topic], listener=self)
        self.thread.start()

    async def on_partitions_assigned(self, assigned):
        self.gained(p.partition for p in assigned)

    async def on_partitions_revoked(self, revoked):
        if revoked:
            await self.consumer.commit()
            self.lost(p.partition for p in revoked)

    def poll(self):
        return [(r.partition, r.offset, r.value) for r in flat(wait(self.consumer.getmany(timeout_ms=100)))]

    def commit(self):
        wait(self.consumer.commit())

    def close(self):
        wait(self.consumer.stop())


class Reader:
    def __init__(self, topic, group):
        self.group = group
        self.partition = TopicPartition(topic, 0)
        self.consumer = wait(consumer(group, isolation_level="read_committed"))
        self.consumer.subscribe([topic])

    def take(self, count):
        async def some():
            return [(await self.consumer.getone()).value for _ in range(count)]

        return wait(some())

    def committed(self):
        return wait(self.consumer.committed(self.partition))

    def seek(self, offset):
        self.consumer.seek(self.partition, offset)

    def close(self):
        wait(self.consumer.stop())


class Transactional:
    def __init__(self, name, bootstrap=BOOTSTRAP):
        conf = {"transactional_id": name, "transaction_timeout_ms": 30_000}
        self.producer = wait(started(AIOKafkaProducer, bootstrap_servers=bootstrap, **conf))

    def begin(self):
        wait(self.producer.begin_transaction())

    def send(self, topic, *values):
        for value in values:
            wait(self.producer.send_and_wait(topic, value))

    def send_offsets(self, reader):
        offsets = {reader.partition: wait(reader.consumer.position(reader.partition))}
        wait(self.producer.send_offsets_to_transaction(offsets, reader.group))

    def commit(self):
        wait(self.producer.commit_transaction())

    def abort(self):
        wait(self.producer.abort_transaction())


class Aio:
    name = "aiokafka"
    UNKNOWN_TOPIC = ["UnknownTopicOrPartitionError"]
    TOPIC_EXISTS = ["TopicAlreadyExistsError"]
    BAD_PARTITIONS = ["InvalidPartitionsError"]
    FENCED_PRODUCER = ["Fenced", "InvalidProducerEpoch"]

    member = AioMember
    reader = Reader
    transactional = Transactional

    def __init__(self):
        self.admin = wait(started(AIOKafkaAdminClient, **PLAIN))

    def produce(
        self, topic, rows, codec="none", timestamp=None, spread=0, idempotent=False, bootstrap=None, security=None
    ):
        conf = {**PLAIN, "linger_ms": 20, "max_request_size": 2_000_000, "acks": "all", **(security or {})}
        conf["compression_type"] = None if codec == "none" else codec
        if idempotent:
            conf.update(enable_idempotence=True, linger_ms=2, max_batch_size=200)
        if bootstrap:
            conf["bootstrap_servers"] = bootstrap

        async def send():
            producer = await started(AIOKafkaProducer, **conf)
            futures = [
                await producer.send(topic, value, key, n % spread if spread else 0, timestamp, headers)
                for n, (key, value, headers) in enumerate(rows)
            ]
            acked = [(await future).offset for future in futures]
            await producer.stop()
            return acked

        return wait(send())

    def read(self, topic, offset=0, committed=False, security=None):
        async def some():
            level = "read_committed" if committed else "read_uncommitted"
            reader = await consumer(security=security, isolation_level=level)
            partition = TopicPartition(topic, 0)
            reader.assign([partition])
            reader.seek(partition, offset)
            end = (await reader.end_offsets([partition]))[partition]
            found = []
            while await reader.position(partition) < end:
                found += flat(await reader.getmany(timeout_ms=100))
            await reader.stop()
            return found

        found = wait(some())
        return [Record(r.key, r.value, list(r.headers), r.offset, r.timestamp, r.timestamp_type == 1) for r in found]

    def take(self, topic, group, count):
        reader = Reader(topic, group)
        got = [int(value) for value in reader.take(count)]
        wait(reader.consumer.commit())
        committed = reader.committed()
        reader.close()
        return got, committed

    def ask(self, question):
        """A consumer for one question."""

        async def answer():
            reader = await consumer()
            try:
                return await question(reader)
            finally:
                await reader.stop()

        return wait(answer())

    def bounds(self, topic):
        partition = TopicPartition(topic, 0)

        async def both(reader):
            first, end = await reader.beginning_offsets([partition]), await reader.end_offsets([partition])
            return first[partition], end[partition]

        return self.ask(both)

    def offset_at(self, topic, at_ms):
        partition = TopicPartition(topic, 0)
        found = self.ask(lambda reader: reader.offsets_for_times({partition: at_ms}))[partition]
        return found.offset if found else None

    def read_unknown(self, topic):
        same(self.ask(lambda reader: reader.topics()) & {topic}, set(), "topics")

    def create_topic(self, topic, partitions, configs=None):
        wanted = NewTopic(topic, partitions, 1, topic_configs=configs or {})
        check(wait(self.admin.create_topics([wanted])).topic_errors)

    def delete_topic(self, topic):
        check(wait(self.admin.delete_topics([topic])).topic_error_codes)

    def list_topics(self):
        return set(wait(self.admin.list_topics()))

    def partition_count(self, topic):
        return len(wait(self.admin.describe_topics([topic]))[0]["partitions"])

    def create_partitions(self, topic, count):
        wait(self.admin.create_partitions({topic: NewPartitions(count)}))

    def list_groups(self):
        return {group[0] for group in wait(self.admin.list_consumer_groups())}

    def group_state(self, group):
        found = wait(self.admin.describe_consumer_groups([group]))[0].to_object()["groups"][0]
        return found["state"], len(found["members"])

    def group_offsets(self, group):
        stored = wait(self.admin.list_consumer_group_offsets(group))
        return {(p.topic, p.partition): at.offset for p, at in stored.items()}

    def sasl(self, bootstrap, password, ca=None, mechanism="PLAIN"):
        conf = {
            "bootstrap_servers": bootstrap,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }
        if ca:
            return {**conf, "security_protocol": "SASL_SSL", "ssl_context": ssl.create_default_context(cafile=ca)}
        return {**conf, "security_protocol": "SASL_PLAINTEXT"}

    def oauth(self, bootstrap, token):
        conf = {"bootstrap_servers": bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        return {**conf, "sasl_oauth_token_provider": TokenProvider(token)}

    def mtls(self, bootstrap, certificate=None, key=None):
        context = ssl.create_default_context(cafile=CA)
        if certificate:
            context.load_cert_chain(certificate, key)
        return {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": context}

    def shut_out(self, security):
        connect = lambda: wait(started(AIOKafkaAdminClient, **security))
        fails("without a certificate of the authority", ["SSL", "Unable to bootstrap"], connect)

    def refused(self, security):
        # The reason goes to its log only.
        connect = lambda: wait(started(AIOKafkaAdminClient, **security))
        fails("wrong password", ["AuthenticationFailed", "Unable to bootstrap"], connect)

    def distrusts(self, bootstrap):
        conf = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
        fails(
            "without the authority", ["SSL", "Unable to bootstrap"], lambda: wait(started(AIOKafkaAdminClient, **conf))
        )


Scenarios(Aio()).run()
