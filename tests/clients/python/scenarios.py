"""The checklist itself, written once for all Python clients.

Each client is a class with the methods used here (`confluent.py` is the most complete). What a client cannot do, it
leaves out or answers with `Skip`.
"""

import threading
from collections import namedtuple

from checklist import *

Record = namedtuple("Record", "key value headers offset timestamp append_time")


def numbers(first, count):
    return [(None, b"%d" % n, []) for n in range(first, first + count)]


def ints(found):
    return [int(record.value) for record in found]


def rows_of(found):
    return [(record.key, record.value, record.headers) for record in found]


class Member:
    """A member of a group on a thread of its own. It commits what it was given before it gives a partition up.

    A client says how to `poll` (a list of partition, offset, value), `commit` and `close`. Its rebalance callbacks call
    `gained` and, after a commit, `lost`.
    """

    def __init__(self, name, seen):
        self.name, self.seen, self.count = name, seen, 0
        self.held, self.revoked, self.error = set(), 0, None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def gained(self, partitions):
        self.held |= set(partitions)

    def lost(self, partitions):
        self.held -= set(partitions)
        self.revoked += 1

    def run(self):
        try:
            while not self.stopping.is_set():
                for partition, offset, value in self.poll():
                    self.count += 1
                    self.seen.append((self.name, partition, offset, int(value)))
            self.commit()
        except Exception as error:
            self.error = error
        finally:
            self.close()

    def partitions(self):
        return set(self.held)

    def leave(self):
        self.stopping.set()
        self.thread.join(WAIT_S)
        if self.error:
            raise self.error


class Scenarios:
    def __init__(self, client):
        self.client = client
        self.records = records(null_headers=getattr(client, "NULL_HEADERS", True))
        self.todo = Checklist()

    def name(self, what):
        return f"{self.client.name}-{what}-{RUN}"

    def create(self, what, partitions=1, **configs):
        """Waits until the topic is seen: Kafka answers earlier, and aiokafka would look again only minutes later."""
        topic = self.name(what)
        self.client.create_topic(topic, partitions, configs)
        until("the new topic is listed", lambda: topic in self.client.list_topics())
        return topic

    def run(self):
        for codec in CODECS:
            self.todo.report(f"codec_{codec}", lambda: self.codec(codec))
        plain = [
            self.append_time,
            self.create_time,
            self.large_record,
            self.empty_topic,
            self.unknown_topic,
            self.offsets,
            self.topics_admin,
        ]
        groups = [self.group_rebalance, self.group_cooperative, self.commit_resume, self.static_member]
        groups += [self.static_fence, self.groups_admin, self.punctuation]
        groups += [self.consumer_rebalance, self.consumer_resume, self.consumer_pattern, self.consumer_static]
        groups += [self.consumer_killed]
        writers = [self.idempotent_cut, self.txn, self.txn_cut, self.txn_open, self.txn_fence, self.txn_offsets]
        writers += [self.punctuation_txn]
        logins = [self.sasl_ok, self.sasl_wrong, self.sasl_scram, self.sasl_oauth, self.tls, self.mtls]
        for check in plain + groups + writers + logins:
            self.todo.report(check.__name__, check)
        self.todo.end()

    # Records there and back.

    def codec(self, codec):
        topic = self.create(f"codec-{codec}")
        self.client.produce(topic, self.records, codec=codec)
        found = self.client.read(topic)
        same(rows_of(found), self.records)
        same([record.offset for record in found], list(range(len(found))), "offsets")

    def append_time(self):
        topic = self.create("time")
        before = now_ms()
        self.client.produce(topic, self.records, timestamp=1_000_000)
        found = self.client.read(topic)
        assert all(record.append_time for record in found), "the timestamps are not called append times"
        check_append_time([record.timestamp for record in found], before, 1_000_000)

    def create_time(self):
        """Producers' timestamps, which go back: each finds the first record that has it or a later one."""
        topic = self.create("created", **{"message.timestamp.type": "CreateTime"})
        base = now_ms() - 60_000
        stamps = [base + 500, base + 300, base + 700, base + 100, base + 900]
        for n, stamp in enumerate(stamps):
            self.client.produce(topic, numbers(n, 1), timestamp=stamp)
        found = self.client.read(topic)
        assert not any(record.append_time for record in found), "the timestamps are called append times"
        same([record.timestamp for record in found], stamps, "timestamps")
        asks = [0, base + 500, base + 501, base + 701, base + 901]
        same([self.client.offset_at(topic, at) for at in asks], [0, 0, 2, 4, None], "offsets by time")

    def large_record(self):
        topic = self.create("large")
        self.client.produce(topic, [(None, LARGE, [])] * 3)
        same([record.value for record in self.client.read(topic)], [LARGE] * 3)

    def empty_topic(self):
        topic = self.create("empty")
        same(self.client.read(topic), [])
        same(self.client.bounds(topic), (0, 0), "beginning and end")

    def unknown_topic(self):
        gone = self.name("nowhere")
        fails("delete", self.client.UNKNOWN_TOPIC, lambda: self.client.delete_topic(gone))
        self.client.read_unknown(gone)
        assert gone not in self.client.list_topics(), "asking for a topic made it"

    def offsets(self):
        topic = self.create("offsets")
        for n in range(3):
            before = now_ms()
            until("the clock moves", lambda: now_ms() > before + 5)
            self.client.produce(topic, numbers(n, 1))
        stamps = [record.timestamp for record in self.client.read(topic)]
        asks = [0, stamps[1], stamps[1] + 1, stamps[2] + 60_000]
        same([self.client.offset_at(topic, at) for at in asks], [0, 1, 2, None], "offsets by time")
        same(self.client.bounds(topic), (0, 3), "beginning and end")
        same(ints(self.client.read(topic, offset=2)), [2], "from offset 2")

    def topics_admin(self):
        client = self.client
        topic = self.create("admin", 3)
        assert topic in client.list_topics(), "the topic is not listed"
        same(client.partition_count(topic), 3, "partitions")
        fails("create again", client.TOPIC_EXISTS, lambda: self.create("admin", 3))
        client.create_partitions(topic, 5)
        until("five partitions", lambda: client.partition_count(topic) == 5)
        fails("fewer partitions", client.BAD_PARTITIONS, lambda: client.create_partitions(topic, 2))
        client.delete_topic(topic)
        until("the topic is gone", lambda: topic not in client.list_topics())

    # Groups.

    def group_rebalance(self, assignor=None):
        topic = self.create(f"group-{assignor}", 4)
        seen, group = [], self.name(f"group-{assignor}")
        join = lambda name: self.client.member(name, topic, group, seen, assignor=assignor)
        send = lambda first: self.client.produce(topic, numbers(first, 200), spread=4)
        first = join("first")
        send(0)
        until("the first member reads all", lambda: len(seen) == 200)
        second = join("second")
        until("two partitions each", lambda: len(first.partitions()) == len(second.partitions()) == 2)
        same(first.partitions() | second.partitions(), {0, 1, 2, 3}, "partitions of both")
        send(200)
        until("both members read", lambda: len(seen) >= 400)
        assert second.count > 0, "the second member read nothing"
        first.leave()
        until("four partitions for the second", lambda: len(second.partitions()) == 4)
        send(400)
        until("the second member reads the rest", lambda: len(seen) >= 600)
        second.leave()
        check_group_log(seen, 600)

    def group_cooperative(self):
        self.group_rebalance("cooperative")

    # Groups of the consumer protocol (KIP-848), in which members learn of their partitions by heartbeats.

    def need_consumer_protocol(self):
        if not getattr(self.client, "CONSUMER_PROTOCOL", False):
            raise Skip("it has no consumer protocol")

    def consumer_rebalance(self):
        self.need_consumer_protocol()
        self.group_rebalance("consumer")

    def consumer_resume(self):
        self.need_consumer_protocol()
        topic, group = self.create("consumer-resume"), self.name("consumer-resume")
        self.client.produce(topic, numbers(0, 10))
        take = lambda count: self.client.take(topic, group, count, protocol="consumer")
        same(take(4), ([0, 1, 2, 3], 4), "first records and committed offset")
        same(take(6), ([4, 5, 6, 7, 8, 9], 10), "the other records and committed offset")
        same(self.client.group_type(group), ("Consumer", "Empty", 0), "type, state and members")
        self.client.delete_group(group)

    def consumer_pattern(self):
        self.need_consumer_protocol()
        topic = self.create("consumer-pattern", 2)
        member = self.client.member("m", f"^{topic[:-1]}.$", self.name("consumer-pattern"), [], assignor="consumer")
        until("both partitions", lambda: member.partitions() == {0, 1})
        member.leave()

    def consumer_static(self):
        self.need_consumer_protocol()
        self.static_member("consumer")

    def consumer_killed(self):
        """A member that is killed loses its partitions when its session ends; nothing that was committed comes again."""
        self.need_consumer_protocol()
        topic, group, seen = self.create("consumer-killed", 4), self.name("consumer-killed"), []
        join = lambda name: self.client.member(name, topic, group, seen, assignor="consumer")
        stays, dies = join("stays"), self.client.killable(topic, group)
        until("two partitions for the one that stays", lambda: len(stays.partitions()) == 2)
        same(self.client.group_type(group)[::2], ("Consumer", 2), "type and members")
        dies.kill()
        until("all partitions for the one that stays", lambda: len(stays.partitions()) == 4, wait_s=90)
        self.client.produce(topic, numbers(0, 100), spread=4)
        until("all is read", lambda: len(seen) >= 100)
        stays.leave()
        check_group_log(seen, 100)

    def commit_resume(self):
        topic = self.create("resume")
        self.client.produce(topic, numbers(0, 10))
        take = lambda count: self.client.take(topic, self.name("resume"), count)
        same(take(4), ([0, 1, 2, 3], 4), "first records and committed offset")
        same(take(6), ([4, 5, 6, 7, 8, 9], 10), "the other records and committed offset")

    def static_member(self, assignor=None):
        topic = self.create(f"static-{assignor}", 4)
        seen, group = [], self.name(f"static-{assignor}")
        join = lambda name: self.client.member(name, topic, group, seen, instance=name, assignor=assignor)
        stays, leaves = join("stays"), join("leaves")
        until("two partitions each", lambda: len(stays.partitions()) == len(leaves.partitions()) == 2)
        had, revoked = leaves.partitions(), stays.revoked
        leaves.leave()
        back = join("leaves")
        until("the partitions come back", lambda: back.partitions() == had)
        self.client.produce(topic, numbers(0, 100), spread=4)
        until("all is read", lambda: len(seen) >= 100)
        same(stays.revoked, revoked, "rebalances seen by the member that stayed")
        stays.leave(), back.leave()
        check_group_log(seen, 100)

    def static_fence(self):
        if not hasattr(self.client, "FENCED_INSTANCE"):
            raise Skip("it does not send its instance with commits and heartbeats")
        topic, group = self.create("fence"), self.name("fence")
        holder = self.client.member("a", topic, group, [], instance="one")
        self.client.produce(topic, numbers(0, 1))
        until("a record", lambda: holder.count == 1)
        rival = self.client.member("b", topic, group, [], instance="one")
        until("the partition moves", rival.partitions)
        fails("commit by the first holder", self.client.FENCED_INSTANCE, holder.leave)
        until("the record was not committed", lambda: rival.count == 1)
        rival.leave()

    def groups_admin(self):
        client, topic, group = self.client, self.create("groups"), self.name("groups")
        member = client.member("m", topic, group, [])
        until("a partition", member.partitions)
        client.produce(topic, numbers(0, 1))
        until("the record", lambda: member.count == 1)
        assert group in client.list_groups(), "the group is not listed"
        same(client.group_state(group), ("Stable", 1), "state and members")
        if hasattr(client, "delete_group"):
            fails("delete a group in use", client.GROUP_IN_USE, lambda: client.delete_group(group))
        member.leave()
        same(client.group_state(group), ("Empty", 0), "state after the last member left")
        same(client.group_offsets(group), {(topic, 0): 1}, "stored offsets")
        if not hasattr(client, "delete_group"):
            return
        client.delete_group(group)
        assert group not in client.list_groups(), "the deleted group is listed"
        fails("delete it again", client.NO_SUCH_GROUP, lambda: client.delete_group(group))

    def punctuation(self):
        """What the server writes where nothing comes is passed over, in the middle and at the end."""
        need(HTTP, "HTTP listener")
        client, topic, group = self.client, self.create("silence"), self.name("silence")
        for first in [0, 3]:
            client.produce(topic, numbers(first, 3))
            punctuate(topic), punctuate(topic)
        same(client.bounds(topic), (0, 10), "beginning and end")
        for committed in [False, True]:
            found = client.read(topic, committed=committed)
            same(ints(found), list(range(6)))
            same([record.offset for record in found], [0, 1, 2, 5, 6, 7], "offsets")
            for offset, rest in [(3, [3, 4, 5]), (4, [3, 4, 5]), (8, []), (9, [])]:
                same(ints(client.read(topic, offset, committed)), rest, f"from {offset}")
        same(client.take(topic, group, 4), ([0, 1, 2, 3], 6), "first records and committed offset")
        got, stored = client.take(topic, group, 2)
        same(got, [4, 5], "the other records")
        assert stored in (8, 9, 10), f"committed offset {stored}"
        punctuate(topic)
        client.produce(topic, numbers(6, 2))
        same(client.take(topic, group, 2), ([6, 7], 13), "what came after the silence")

    # Idempotence and transactions.

    def idempotent_cut(self):
        need(PROXY, "proxy")
        topic = self.create("cut")
        before = cuts()
        acked = self.client.produce(topic, numbers(0, 500), idempotent=True, bootstrap=PROXY)
        assert cuts() > before, "no connection was cut"
        found = self.client.read(topic)
        same(ints(found), list(range(500)))
        same(acked, [record.offset for record in found], "acknowledged offsets")

    def txn(self):
        topic = self.create("txn")
        producer = self.client.transactional(self.name("txn"))
        for values, commit in [([b"a", b"b"], True), ([b"x", b"y"], False), ([b"c"], True)]:
            producer.begin()
            producer.send(topic, *values)
            producer.commit() if commit else producer.abort()
        values = lambda committed: [record.value for record in self.client.read(topic, committed=committed)]
        same(values(True), [b"a", b"b", b"c"], "read_committed")
        same(values(False), [b"a", b"b", b"x", b"y", b"c"], "read_uncommitted")

    def txn_cut(self):
        """Answers to the requests of a transaction are lost; each must still be done exactly once."""
        need(PROXY, "proxy")
        topic = self.create("txn-cut")
        before = cuts()
        producer = self.client.transactional(self.name("txn-cut"), PROXY)
        for n in range(6):
            producer.begin()
            producer.send(topic, b"%d" % n)
            producer.commit() if n % 2 == 0 else producer.abort()
        assert cuts() > before, "no connection was cut"
        same(ints(self.client.read(topic, committed=True)), [0, 2, 4], "read_committed")
        same(ints(self.client.read(topic)), [0, 1, 2, 3, 4, 5], "read_uncommitted")

    def txn_open(self):
        """What is not committed yet is not seen, nor what comes after it."""
        topic = self.create("open")
        producer = self.client.transactional(self.name("open"))
        producer.begin()
        producer.send(topic, b"pending")
        self.client.produce(topic, [(None, b"after", [])])
        values = lambda: [record.value for record in self.client.read(topic, committed=True)]
        same(values(), [], "while the transaction is open")
        producer.commit()
        until("both records", lambda: values() == [b"pending", b"after"])

    def punctuation_txn(self):
        """A punctuation ends no transaction, neither an open one nor one that will be aborted."""
        need(HTTP, "HTTP listener")
        topic = self.create("silence-txn")
        producer = self.client.transactional(self.name("silence-txn"))
        for values, commit in [([b"a", b"b"], True), ([b"x", b"y"], False)]:
            producer.begin()
            for value in values:
                producer.send(topic, value)
                punctuate(topic)
            producer.commit() if commit else producer.abort()
        punctuate(topic)
        values = lambda committed: [record.value for record in self.client.read(topic, committed=committed)]
        same(values(True), [b"a", b"b"], "read_committed")
        same(values(False), [b"a", b"b", b"x", b"y"], "read_uncommitted")

    def txn_fence(self):
        topic = self.create("zombie")
        zombie = self.client.transactional(self.name("zombie"))
        zombie.begin()
        zombie.send(topic, b"from the dead")
        heir = self.client.transactional(self.name("zombie"))
        fails("commit of a fenced producer", self.client.FENCED_PRODUCER, zombie.commit)
        heir.begin()
        heir.send(topic, b"alive")
        heir.commit()
        same([record.value for record in self.client.read(topic, committed=True)], [b"alive"])

    def txn_offsets(self):
        source, target, group = self.create("source"), self.create("target"), self.name("transform")
        self.client.produce(source, numbers(0, 20))
        producer = self.client.transactional(self.name("offsets"))
        reader = self.client.reader(source, group)

        def transform(count, commit):
            producer.begin()
            for value in reader.take(count):
                producer.send(target, b"%d" % (2 * int(value)))
            producer.send_offsets(reader)
            producer.commit() if commit else producer.abort()

        # Old versions of OffsetFetch do not wait for the end of a transaction, so the client may be a moment early.
        transform(8, True)
        until("offset 8 after the commit", lambda: reader.committed() == 8)
        transform(5, False)
        same(reader.committed(), 8, "offset after the abort")
        reader.seek(8)
        transform(12, True)
        until("offset 20 at the end", lambda: reader.committed() == 20)
        same(ints(self.client.read(target, committed=True)), [2 * n for n in range(20)], "doubled numbers")
        reader.close()

    # Who may come in.

    def round_trip(self, what, security):
        topic = self.create(what)
        self.client.produce(topic, self.records, security=security)
        same(rows_of(self.client.read(topic, security=security)), self.records)

    def sasl_ok(self):
        need(SASL, "SASL listener")
        self.round_trip("sasl", self.client.sasl(SASL, PASSWORD))

    def sasl_wrong(self):
        need(SASL, "SASL listener")
        self.client.refused(self.client.sasl(SASL, "wrong"))

    def sasl_scram(self):
        need(SASL, "SASL listener")
        need(HTTP, "keys with SCRAM verifiers")
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"]:
            self.round_trip(mechanism.lower(), self.client.sasl(SASL, PASSWORD, mechanism=mechanism))
            self.client.refused(self.client.sasl(SASL, "wrong", mechanism=mechanism))

    def sasl_oauth(self):
        need(SASL, "SASL listener")
        self.round_trip("oauth", self.client.oauth(SASL, token("token")))
        for wrong in ["token.forged", "token.expired"]:
            self.client.refused(self.client.oauth(SASL, token(wrong)))

    def mtls(self):
        need(MTLS, "listener that asks for certificates")
        self.round_trip("mtls", self.client.mtls(MTLS, credential("client.pem"), credential("client.key")))
        self.client.shut_out(self.client.mtls(MTLS, credential("other.pem"), credential("other.key")))
        self.client.shut_out(self.client.mtls(MTLS))

    def tls(self):
        need(TLS, "TLS listener")
        self.round_trip("tls", self.client.sasl(TLS, PASSWORD, CA))
        self.client.distrusts(TLS)
