#!/usr/bin/env python3
"""Keeps a book of what a server has acknowledged, and holds the server to it.

    ledger.py write BOOTSTRAP LEDGER [--seconds S] [--until-refused] [--rate N] [--patience S]
    ledger.py check BOOTSTRAP LEDGER

`write` sends numbered records with an idempotent producer, waiting for all acknowledgements, and appends a line
"partition offset number" for each that was acknowledged. It ends after S seconds, on SIGTERM or, with
--until-refused, when a record was refused. It ends with 0 when every record was acknowledged, 1 when some were refused,
3 when the producer itself was told that its promise cannot be kept.
A second `write` goes on with the numbers where the first one stopped.

`check` reads everything back: each acknowledged record is at its offset with its content, the numbers of a partition
only grow, and no number is there twice. Records that were sent but never acknowledged may be there or not.
"""

import argparse
import os
import signal
import sys
import time
import zlib

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "ledger"
PARTITIONS = 4


def content(number):
    """A record can be told from its number alone, so a torn or foreign one is noticed."""
    text = b"%d " % number
    filler = b"%08x" % zlib.crc32(text)
    return text + filler * (4 + number % 40)


def number_of(value):
    number = int(value.split(b" ", 1)[0])
    if value != content(number):
        raise SystemExit(f"record {number} has another content than was sent")
    return number


def read_ledger(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [tuple(map(int, line.split())) for line in file]


class Writer:
    def __init__(self, args):
        self.ledger = open(args.ledger, "a", buffering=1)
        self.acked = self.refused = 0
        self.reasons = {}
        self.fatal = None
        self.stopping = False
        self.until_refused = args.until_refused
        self.producer = Producer(
            {
                "bootstrap.servers": args.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": int(args.patience * 1000),
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "socket.timeout.ms": 5000,
                "queue.buffering.max.messages": 2000,
                "error_cb": self.on_error,
                "log_level": 0,
            }
        )

    def on_error(self, error):
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fatal = error

    def on_delivery(self, error, message):
        if error:
            self.refused += 1
            self.stopping |= self.until_refused
            self.reasons[error.name()] = self.reasons.get(error.name(), 0) + 1
            return
        self.acked += 1
        self.ledger.write(f"{message.partition()} {message.offset()} {number_of(message.value())}\n")

    def run(self, first, seconds, rate, patience):
        started = time.monotonic()
        sent = 0
        while not (self.stopping or self.fatal) and time.monotonic() - started < seconds:
            allowed = int((time.monotonic() - started) * rate) - sent
            for _ in range(min(allowed, 100)):
                number = first + sent
                try:
                    self.producer.produce(
                        TOPIC, content(number), partition=number % PARTITIONS, on_delivery=self.on_delivery
                    )
                except BufferError:
                    break
                except KafkaException as error:
                    self.fatal = self.fatal or error.args[0]
                    break
                sent += 1
            self.producer.poll(0.005)
        self.producer.flush(patience + 5)
        return sent


def next_number(args, ledger):
    """Above all that was ever sent, acknowledged or not."""
    known = [number for _, _, number in ledger]
    known += [int(line) for line in open(args.ledger + ".sent")] if os.path.exists(args.ledger + ".sent") else []
    return max(known, default=-1) + 1


def create_topic(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def write(args):
    create_topic(args.bootstrap)
    first = next_number(args, read_ledger(args.ledger))
    writer = Writer(args)
    signal.signal(signal.SIGTERM, lambda *_: setattr(writer, "stopping", True))
    sent = writer.run(first, args.seconds, args.rate, args.patience)
    with open(args.ledger + ".sent", "a") as file:
        file.write(f"{first + sent}\n")
    print(f"sent {sent} acknowledged {writer.acked} refused {writer.refused} {writer.reasons or ''}".rstrip())
    if writer.fatal:
        print(f"fatal: {writer.fatal}")
        return 3
    return 1 if writer.acked < sent else 0


def read_partition(bootstrap, partition):
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ledger-check",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    reader.assign([TopicPartition(TOPIC, partition, 0)])
    records = {}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in reader.consume(10_000, 1):
            if not message.error():
                records[message.offset()] = number_of(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                reader.close()
                return records
            else:
                raise KafkaException(message.error())
    raise SystemExit(f"partition {partition} could not be read to its end")


def faults_of(partition, records, ledger):
    """What is wrong with a partition, in words."""
    for where, offset, number in ledger:
        if where != partition:
            continue
        if offset not in records:
            yield f"acknowledged record {number} is gone from {partition}:{offset}"
        elif records[offset] != number:
            yield f"{partition}:{offset} holds record {records[offset]}, not {number}"
    in_order = [records[offset] for offset in sorted(records)]
    for before, after in zip(in_order, in_order[1:]):
        if after == before:
            yield f"record {after} is twice in partition {partition}"
        elif after < before:
            yield f"record {after} comes after {before} in partition {partition}"
    if sorted(records) != list(range(len(records))):
        yield f"the offsets of partition {partition} have a gap"


def check(args):
    ledger = read_ledger(args.ledger)
    faults, found, seen = [], 0, set()
    for partition in range(PARTITIONS):
        records = read_partition(args.bootstrap, partition)
        faults += faults_of(partition, records, ledger)
        twice = seen & set(records.values())
        faults += [f"record {number} is in two partitions" for number in twice]
        seen |= set(records.values())
        found += len(records)
    for fault in faults[:20]:
        print(fault)
    print(f"{len(ledger)} acknowledged, {found} found, {len(faults)} faults")
    return 1 if faults or not ledger else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["write", "check"])
    parser.add_argument("bootstrap")
    parser.add_argument("ledger")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--until-refused", action="store_true")
    parser.add_argument("--rate", type=int, default=3000)
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds until an unacknowledged record is given up"
    )
    args = parser.parse_args()
    sys.exit({"write": write, "check": check}[args.command](args))


if __name__ == "__main__":
    main()
