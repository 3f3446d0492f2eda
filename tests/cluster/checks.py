"""Jobs over a cluster of Apache Kafka, beside the same jobs over hubs of one node that nothing disturbs.

    checks.py BOOTSTRAP DIR [--large]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import datetime, timedelta, timezone

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = pathlib.Path(__file__).resolve().parent
BIN = os.environ["HIGHWATER_BIN"]
HTTP_PORT = int(os.environ["CLUSTER_PORT"]) + 6
# The Kafka listener of the node, through which rows of hubs are read.
SERVER = f"127.0.0.1:{HTTP_PORT + 1}"
PARTITIONS = 2
PATIENCE = 120

# Rows depend on event times alone, so that hubs and topics, which append at different times, give the same.
TIME = """
[time]
late_arrival = "1h"
out_of_order = "2s"
early_arrival = "1h"
"""

COUNTS = """
SELECT Device, System.Timestamp() AS WindowEnd, COUNT(*) AS Events, SUM(Value) AS Total, MAX(Value) AS Highest
INTO out FROM e TIMESTAMP BY At GROUP BY Device, TumblingWindow(second, 5)
"""
LARGE = """
SELECT Device, Value, At, System.Timestamp() AS Time INTO out FROM e TIMESTAMP BY At WHERE Value % 3 = 0
"""
CHANGES = """
SELECT Device, System.Timestamp() AS Time, Value, LAG(Value) OVER (PARTITION BY Device LIMIT DURATION(minute, 5)) AS Before
INTO out FROM e TIMESTAMP BY At
"""
QUERIES = {"counts": COUNTS, "large": LARGE, "changes": CHANGES}

# Everybody who does not log in again within ten seconds; only silence can tell.
SILENCE = """
SELECT a.Who AS Who, System.Timestamp() AS Time INTO out
FROM e a TIMESTAMP BY At
LEFT JOIN e b TIMESTAMP BY At ON a.Who = b.Who AND DATEDIFF(second, a, b) BETWEEN 1 AND 10
WHERE b.Who IS NULL
"""


class Node:
    """A node with its jobs, which can be killed and started again."""

    def __init__(self, folder, jobs, hubs=""):
        self.folder = folder
        folder.mkdir(parents=True)
        lines = [f'data = "{folder}/data"', "[http]", f'listen = "127.0.0.1:{HTTP_PORT}"',
                 "[kafka]", f'listen = "{SERVER}"', hubs]
        for name, text in jobs.items():
            (folder / name).mkdir()
            (folder / name / "job.toml").write_text(text)
            lines.append(f'[jobs.{name}]\npath = "{folder}/{name}"')
        (folder / "highwater.toml").write_text("\n".join(lines))
        self.start()

    def start(self):
        log = open(self.folder / "log", "ab")
        command = [BIN, "up", "-c", self.folder / "highwater.toml"]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: self.get("/healthz") is not None, f"the node, see {self.folder}/log")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)

    def get(self, path):
        if self.process.poll() is not None:
            raise SystemExit((self.folder / "log").read_text()[-3000:])
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{HTTP_PORT}{path}", timeout=5) as answer:
                return answer.read()
        except OSError:
            return None

    def job(self, name):
        answer = self.get(f"/api/jobs/{name}")
        return json.loads(answer) if answer else None


def until(holds, what):
    began = time.time()
    while time.time() - began < PATIENCE:
        found = holds()
        if found:
            return found
        time.sleep(0.05)
    raise SystemExit(f"not within {PATIENCE} s: {what}")


def job_file(name, query, source, target):
    return f'name = "{name}"\nstart = "beginning"\nsql = """{query}"""\n{TIME}\n[checkpoint]\nevery = "1s"\n{source}\n{target}\n'


def topic_in(servers, topic):
    return f'[inputs.e]\ntype = "kafka"\nservers = {json.dumps(servers.split(","))}\ntopic = "{topic}"\n'


def topic_out(servers, topic):
    return f'[outputs.out]\ntype = "kafka"\nservers = {json.dumps(servers.split(","))}\ntopic = "{topic}"\nkey = "Device"\n'


def hub_job(name, query, more=""):
    """Of the hubs of a node, whatever its log is."""
    target = f'[outputs.out]\ntype = "hub"\nhub = "out-{name}"\nkey = "Device"\n'
    return job_file(name, query, '[inputs.e]\nhub = "e"\n', target) + more


def create(servers, *topics):
    admin = AdminClient({"bootstrap.servers": servers})
    config = {"message.timestamp.type": "LogAppendTime"}
    new = [NewTopic(topic, PARTITIONS, 3, config=config) for topic in topics]
    for made in admin.create_topics(new).values():
        made.result(30)


def events(count):
    """In each partition ascending; the last closes every window."""
    base = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(minutes=5)
    for n in range(count):
        at = base + timedelta(milliseconds=20 * n)
        device = f"device-{n * 7 % 13}"
        yield n * 7 % 13 % PARTITIONS, {"Device": device, "Value": n * 37 % 101, "At": at.isoformat()}
    for partition in range(PARTITIONS):
        at = base + timedelta(minutes=30)
        yield partition, {"Device": "end", "Value": 1, "At": at.isoformat()}


def read_committed(servers, topic, partition):
    """Keys and values of everything that is there."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed",
                "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    rows = []
    while True:
        message = consumer.poll(30)
        if message is None:
            raise SystemExit(f"{topic} cannot be read")
        if message.error():
            consumer.close()
            return rows
        rows.append((message.key(), message.value()))


def embedded(folder, sent, queries=QUERIES, more=""):
    """The rows of undisturbed jobs over hubs, by job and partition. `more`: of every job file."""
    hubs = "".join(f"[hubs.{hub}]\npartitions = {PARTITIONS}\n" for hub in ["e", *(f"out-{name}" for name in queries)])
    node = Node(folder, {name: hub_job(name, query, more) for name, query in queries.items()}, hubs)
    until(lambda: all(has_read(node, name, [0] * PARTITIONS) for name in queries), "the jobs read")
    producer = Producer({"bootstrap.servers": SERVER})
    for n, (partition, event) in enumerate(sent):
        producer.produce("e", json.dumps(event).encode(), partition=partition)
        if n % 1000 == 999:
            producer.flush(60)
    producer.flush(60)
    rows, sent_to = {}, ends(SERVER, "e")
    for name in queries:
        read = lambda: [read_committed(SERVER, f"out-{name}", partition) for partition in range(PARTITIONS)]
        rows[name] = settled(read, lambda: has_read(node, name, sent_to))
    node.stop()
    return rows


def ends(servers, topic):
    """The ends of the partitions."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30)[1] for n in range(PARTITIONS)]
    consumer.close()
    return found


def has_read(node, name, ends):
    """Whether the job has read its partitions to these ends."""
    job = node.job(name)
    if job and job.get("state") == "failed":
        raise SystemExit(f"{name} failed: {job}")
    inputs = (job or {}).get("inputs", [])
    partitions = [p for one in inputs for p in one["partitions"]]
    return len(partitions) == len(ends) and all(p["next"] >= end for p, end in zip(partitions, ends))


def settled(read, is_read):
    """The rows once nothing is left to read and no more come."""
    rows = until(lambda: is_read() and read(), "the input is read")
    began = time.time()
    while time.time() - began < PATIENCE:
        time.sleep(1.5)
        again = read()
        if again == rows and any(rows) and is_read():
            return rows
        rows = again
    raise SystemExit(f"rows still come, or there are none: {[len(part) for part in rows]}")


def compare(what, found, expected):
    for partition, (own, other) in enumerate(zip(found, expected)):
        if own == other:
            continue
        same = next((n for n, pair in enumerate(zip(own, other)) if pair[0] != pair[1]), min(len(own), len(other)))
        raise SystemExit(f"{what}, partition {partition}: {len(own)} rows, not {len(other)}; the first other is row {same}: "
                         f"{own[same:same + 2]} instead of {other[same:same + 2]}")
    print(f"ok: {what}: {sum(map(len, found))} rows")


def check_kills(servers, folder, sent, expected, kills, cluster):
    """Jobs from topic to topic; the node is killed while events come, and a broker dies and comes back."""
    create(servers, "e", *(f"out-{name}" for name in QUERIES))
    jobs = {name: job_file(name, query, topic_in(servers, "e"), topic_out(servers, f"out-{name}"))
            for name, query in QUERIES.items()}
    node = Node(folder, jobs)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    step = max(1, len(sent) // (kills + 1))
    killed = 0
    for n, (partition, event) in enumerate(sent):
        producer.produce("e", json.dumps(event).encode(), partition=partition)
        producer.poll(0)
        if n % 200 == 0:
            producer.flush(30)
            time.sleep(0.05)
        if n % step == step - 1 and killed < kills:
            # At another moment of its work every time.
            producer.flush(60)
            time.sleep(0.3 + 0.37 * (killed % 5))
            node.kill()
            killed += 1
            if killed == (kills + 1) // 2:
                subprocess.run([HERE / "kafka", "kill", "2", cluster], check=True)
            node.start()
            if killed == (kills + 1) // 2:
                subprocess.run([HERE / "kafka", "restart", "2", cluster], check=True)
    producer.flush(60)
    sent_to = ends(servers, "e")
    for name in QUERIES:
        read = lambda: [read_committed(servers, f"out-{name}", partition) for partition in range(PARTITIONS)]
        found = settled(read, lambda: has_read(node, name, sent_to))
        compare(f"{name} with {killed} kills and a dead broker equals the undisturbed hub", found, expected[name])
    node.stop()


def check_silence(servers, folder):
    create(servers, "login", "alarms")
    time_policy = TIME.replace("1h", "2s", 1)
    query = job_file("silence", SILENCE, topic_in(servers, "login"), topic_out(servers, "alarms").replace('key = "Device"', ""))
    node = Node(folder, {"silence": query.replace(TIME, time_policy)})
    until(lambda: has_read(node, "silence", [0] * PARTITIONS), "the job reads")
    producer = Producer({"bootstrap.servers": servers})
    at = datetime.now(timezone.utc)
    producer.produce("login", json.dumps({"Who": "eve", "At": at.isoformat()}).encode(), partition=0)
    producer.flush(30)
    read = lambda: [row for partition in range(PARTITIONS) for row in read_committed(servers, "alarms", partition)]
    rows = until(read, "silence is told")
    took = (datetime.now(timezone.utc) - at).total_seconds()
    # Ten seconds, the late arrival, the margin of the clocks and the interval of the journal; the rest is this machine's.
    if not 12 <= took <= 25:
        raise SystemExit(f"silence was told after {took:.1f} s")
    node.kill()
    node.start()
    time.sleep(5)
    again = read()
    if again != rows or len(rows) != 1:
        raise SystemExit(f"silence was told by {again}")
    node.stop()
    print(f"ok: ten seconds of silence were told once, after {took:.1f} s, and not again after a kill")


def main():
    servers, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    is_large = "--large" in sys.argv
    sent = list(events(60_000 if is_large else 6_000))
    expected = embedded(folder / "embedded", sent)
    check_kills(servers, folder / "kills", sent, expected, 10 if is_large else 3, folder / "cluster")
    check_silence(servers, folder / "silence")


if __name__ == "__main__":
    main()
