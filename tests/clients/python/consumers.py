"""Two members of a group of the consumer protocol, and a node that is killed (-9) and started again.

    consumers.py HIGHWATER DIR ROUNDS      HIGHWATER is the script that starts and kills the node with its data in DIR

Epochs and assignments are stored before a member sees them, so no member is fenced and no partition moves: every record is
read, and none twice, because each is committed before the next is taken.
"""

import subprocess
import sys

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from checklist import *

SCRIPT, DIR, ROUNDS = sys.argv[1], sys.argv[2], int(sys.argv[3])
PARTITIONS, COUNT = 4, 100
TOPIC = f"consumers-{RUN}"


class GroupMember:
    def __init__(self, seen):
        self.held, self.revocations, self.seen = set(), 0, seen
        conf = {"bootstrap.servers": BOOTSTRAP, "group.id": TOPIC, "group.protocol": "consumer"}
        self.consumer = Consumer({**conf, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        self.consumer.subscribe([TOPIC], on_assign=self.gained, on_revoke=self.lost, on_lost=self.lost)

    def gained(self, _, partitions):
        self.held |= {p.partition for p in partitions}

    def lost(self, _, partitions):
        self.held -= {p.partition for p in partitions}
        self.revocations += 1

    def step(self):
        message = self.consumer.poll(0.02)
        if message is None or message.error():
            return
        self.seen.append(int(message.value()))
        until("a commit", lambda: self.commit(message))

    def commit(self, message):
        """False while the node is away."""
        try:
            return self.consumer.commit(message, asynchronous=False)
        except KafkaException:
            return False


def node(command):
    subprocess.run([SCRIPT, command, DIR], check=True, stdout=subprocess.DEVNULL)


def send(first):
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(first, first + COUNT):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    same(producer.flush(WAIT_S), 0, "records not acknowledged")


def main():
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)
    seen = []
    members = [GroupMember(seen), GroupMember(seen)]
    step = lambda: [member.step() for member in members]
    wait = lambda what, done: until(what, lambda: step() and done(), 90)
    wait("two partitions each", lambda: all(len(member.held) == 2 for member in members))
    revocations = [member.revocations for member in members]
    for number in range(ROUNDS):
        send(number * COUNT)
        wait("some records", lambda: len(seen) > number * COUNT)
        node("kill")
        node("restart")
        wait("all records", lambda: len(seen) >= (number + 1) * COUNT)
    same(sorted(seen), list(range(ROUNDS * COUNT)), "records")
    same([member.revocations for member in members], revocations, "revocations")
    found = admin.describe_consumer_groups([TOPIC])[TOPIC].result(WAIT_S)
    same((found.type.name, found.state.name, len(found.members)), ("CONSUMER", "STABLE", 2), "the group")
    for member in members:
        member.consumer.close()
    print(f"ok: {ROUNDS} kills, {len(seen)} records, no rebalance")


main()
