"""A processor in two processes over a broker, one of which is killed.

    remote.py PROGRAM BOOTSTRAP [RESTART]       PROGRAM is the example `remote` of crates/kafka

Events are sent, two instances share them, one dies by kill -9 while more are sent, the other takes over. Every event must be
handled, none of them again that a stored position is past, and the positions, as another client sees them, must in the end be
the ends of the partitions. RESTART, a command that kills the broker and starts it again, is run before the end.
"""

import os
import subprocess
import sys
import threading
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

PROGRAM, BOOTSTRAP, *RESTART = sys.argv[1:]
RUN = f"{os.getpid()}-{time.time_ns() % 1_000_000}"
HUB, GROUP = f"orders-{RUN}", f"billing-{RUN}"
PARTITIONS = 6
COUNT = 1000
PATIENCE = 120


def send():
    subprocess.run([PROGRAM, BOOTSTRAP, "send", HUB, str(COUNT)], check=True, stdout=subprocess.DEVNULL)


class Instance:
    """One process, and the ids of the events that it said it handled."""

    def __init__(self):
        self.handled = []
        command = [PROGRAM, BOOTSTRAP, "handle", HUB, GROUP]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            # The last line of one that was killed may be cut off.
            if line.endswith("\n"):
                self.handled.append(line.split()[0])


def until(what, so):
    deadline = time.monotonic() + PATIENCE
    while not so():
        if time.monotonic() > deadline:
            sys.exit(f"FAIL: {what}, not within {PATIENCE} s")
        time.sleep(0.1)


def ends():
    """Where each partition ends."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": f"looker-{RUN}"})
    found = {n: consumer.get_watermark_offsets(TopicPartition(HUB, n), timeout=30)[1] for n in range(PARTITIONS)}
    consumer.close()
    return found


def positions(admin):
    """What the group has stored, by partition."""
    asked = ConsumerGroupTopicPartitions(GROUP)
    found = admin.list_consumer_group_offsets([asked])[GROUP].result(timeout=30)
    return {stored.partition: stored.offset for stored in found.topic_partitions}


def quiet(instance):
    """How much it has handled, once nothing of it is on its way to us any more."""
    count = -1
    while count != len(instance.handled):
        count = len(instance.handled)
        time.sleep(2)
    return count


def partition(event):
    return int(event.split("/")[1].split("@")[0])


def main():
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
    send()
    one, two = Instance(), Instance()
    try:
        until("the first events are handled", lambda: len({*one.handled, *two.handled}) >= COUNT)
        # Until both have partitions; which have nothing new until something is sent.
        sent = 1

        def shared():
            nonlocal sent
            send()
            sent += 1
            before = len(one.handled), len(two.handled)
            until("new events are handled", lambda: len({*one.handled, *two.handled}) >= sent * COUNT)
            return len(one.handled) > before[0] and len(two.handled) > before[1]

        until("both instances have events", shared)
        mark = ends()
        until("both have stored how far they are", lambda: positions(admin) == mark)
        before = quiet(one)
        sending = threading.Thread(target=lambda: [send() for _ in range(3)])
        sending.start()
        two.process.kill()
        sending.join()
        sent += 3
        until("everything is handled", lambda: len({*one.handled, *two.handled}) == sent * COUNT)
        if RESTART:
            subprocess.run(RESTART, shell=True, check=True, stdout=subprocess.DEVNULL)
            # An idle admin client may wait a minute for the connection that it knew.
            admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
            send()
            sent += 1
            until("everything after the restart is handled", lambda: len({*one.handled, *two.handled}) == sent * COUNT)
        last = ends()
        if sum(last.values()) != sent * COUNT:
            sys.exit(f"FAIL: {sent * COUNT} events were sent, and the partitions end at {last}")
        every = {f"{HUB}/{partition}@{n}" for partition, end in last.items() for n in range(end)}
        if {*one.handled, *two.handled} != every:
            sys.exit("FAIL: what was handled is not what was sent")
        early = [event for event in one.handled[before:] if int(event.split("@")[1]) < mark[partition(event)]]
        if early:
            sys.exit(f"FAIL: handled again though it was stored that they were: {early[:5]}")
        until("the group's positions are the ends", lambda: positions(admin) == last)
        again = len(one.handled) + len(two.handled) - len(every)
        print(f"ok   {BOOTSTRAP}: {len(every)} events, {len(one.handled)} and {len(two.handled)}, {again} of them again")
    finally:
        for instance in (one, two):
            instance.process.kill()
            instance.process.wait()


if __name__ == "__main__":
    main()
