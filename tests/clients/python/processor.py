"""A Kafka client in the consumer group of a processor.

    processor.py CLIENT       confluent or kafka_python; HIGHWATER_BIN is the binary

Alone the processor has all partitions. When the client joins, each has half of them, and every event goes to one of the
two. When the client leaves, the processor goes on where it committed.
"""

import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(os.environ.get("HIGHWATER_PORT", "29292"))
HTTP, KAFKA, HOOK = PORT, PORT + 1, PORT + 2
PARTITIONS = 4
PATIENCE = 120


class Seen:
    """Which event came to whom, as `(partition, offset)`."""

    def __init__(self):
        self.lock = threading.Lock()
        self.by = {"processor": [], "client": []}

    def add(self, who, partition, offset):
        with self.lock:
            self.by[who].append((partition, offset))

    def of(self, who, events):
        with self.lock:
            return [event for event in self.by[who] if event in events]


def webhook(seen):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            seen.add("processor", int(self.headers["highwater-partition"]), int(self.headers["highwater-offset"]))
            self.send_response_only(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", HOOK), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


class Confluent:
    def __init__(self):
        from confluent_kafka import Consumer

        self.consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{KAFKA}",
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
            }
        )
        self.consumer.subscribe(["orders"])

    def poll(self):
        records = self.consumer.consume(100, 0.2)
        return [(record.partition(), record.offset()) for record in records if not record.error()]

    def partitions(self):
        return {place.partition for place in self.consumer.assignment()}

    def close(self):
        self.consumer.close()


class KafkaPython:
    def __init__(self):
        from kafka import KafkaConsumer

        self.consumer = KafkaConsumer(
            "orders", bootstrap_servers=f"127.0.0.1:{KAFKA}", group_id="billing", auto_offset_reset="earliest"
        )

    def poll(self):
        records = self.consumer.poll(timeout_ms=200)
        return [(record.partition, record.offset) for batch in records.values() for record in batch]

    def partitions(self):
        return {place.partition for place in self.consumer.assignment()}

    def close(self):
        self.consumer.close()


CLIENTS = {"confluent": Confluent, "kafka_python": KafkaPython}


class Reader(threading.Thread):
    """The client at work, until it is told to leave."""

    def __init__(self, client, seen):
        super().__init__()
        self.client, self.seen, self.leaving, self.partitions = client, seen, threading.Event(), set()

    def run(self):
        while not self.leaving.is_set():
            for event in self.client.poll():
                self.seen.add("client", *event)
            self.partitions = self.client.partitions()
        self.client.close()


def until(what, holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"FAIL {sys.argv[1]}: {what} did not happen within {PATIENCE} s")
        time.sleep(0.05)


def send(start, count):
    """The places of so many events, as many in each partition."""
    places = set()
    for number in range(start, start + count):
        connection = http.client.HTTPConnection("127.0.0.1", HTTP, timeout=30)
        partition = number % PARTITIONS
        connection.request("POST", f"/hubs/orders/partitions/{partition}/messages", str(number))
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        places.add((partition, number // PARTITIONS))
        connection.close()
    return places


def ready():
    try:
        check = http.client.HTTPConnection("127.0.0.1", HTTP, timeout=5)
        check.request("GET", "/readyz")
        return check.getresponse().status == 200
    except OSError:
        return False


def main():
    folder = tempfile.TemporaryDirectory()
    with open(f"{folder.name}/highwater.toml", "w") as file:
        file.write(
            f'data = "{folder.name}/data"\nhttp = {{ listen = "127.0.0.1:{HTTP}" }}\n'
            f'kafka = {{ listen = "127.0.0.1:{KAFKA}" }}\n[hubs.orders]\npartitions = {PARTITIONS}\n'
            f'[processors.billing]\nhub = "orders"\ngroup = "billing"\ncheckpoint = {{ events = 1 }}\n'
            f'handler = {{ url = "http://127.0.0.1:{HOOK}/" }}\n'
        )
    seen = Seen()
    webhook(seen)
    log = open(f"{folder.name}/log", "w")
    node = subprocess.Popen([os.environ["HIGHWATER_BIN"], "up", "-c", f"{folder.name}/highwater.toml"], stdout=log, stderr=log)
    reader = None
    try:
        until("the start", ready)
        alone = send(0, 40)
        until("the processor's work alone", lambda: set(seen.of("processor", alone)) == alone)

        reader = Reader(CLIENTS[sys.argv[1]](), seen)
        reader.start()
        until("half of the partitions", lambda: len(reader.partitions) == PARTITIONS // 2)
        shared = send(40, 40)
        both = lambda: seen.of("processor", shared) + seen.of("client", shared)
        until("the work of both", lambda: set(both()) == shared)
        theirs = {partition for partition, _ in seen.of("client", shared)}
        ours = {partition for partition, _ in seen.of("processor", shared)}
        if theirs & ours or theirs != reader.partitions:
            raise SystemExit(f"FAIL {sys.argv[1]}: processor {ours}, client {theirs} of {reader.partitions}")

        reader.leaving.set()
        reader.join()
        last = send(80, 40)
        until("the processor's work after the client left", lambda: set(seen.of("processor", last)) == last)
        again = len(both()) - len(shared)
        print(f"ok {sys.argv[1]}: processor {sorted(ours)}, client {sorted(theirs)}, {again} delivered again")
    finally:
        if reader:
            reader.leaving.set()
        node.terminate()
        node.wait()


main()
