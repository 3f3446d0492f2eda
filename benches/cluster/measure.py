"""W2 over topics and over hubs, in turns; see `run`.

    measure.py BOOTSTRAP DIR EVENTS ROUNDS
"""

import atexit
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from datetime import datetime, timedelta, timezone

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BIN = os.environ["HIGHWATER_BIN"]
PORT = int(os.environ["BENCH_PORT"]) + 8
PARTITIONS = 2
TOLLS = 100
# Events of a second of event time.
RATE = 1000
OUT_OF_ORDER_S = 5
PATIENCE = 600
TICK = os.sysconf("SC_CLK_TCK")
BENCH = pathlib.Path(__file__).resolve().parent
# The folder of the peers; without it there are none.
PEERS = os.environ.get("BENCH_PEERS")

QUERY = """
SELECT TollId, System.Timestamp() AS WindowEnd, COUNT(*) AS Cars, SUM(Toll) AS Takings, AVG(Toll) AS AverageToll
INTO output FROM Input TIMESTAMP BY EntryTime GROUP BY TollId, TumblingWindow(minute, 1)
"""


def events(count):
    """Events of about 150 bytes, the last one less than an hour ago; 5% up to two seconds out of order."""
    chance = random.Random(1)
    begin = datetime.now(timezone.utc).replace(second=0, microsecond=0) - timedelta(seconds=count / RATE + 120)
    for n in range(count):
        age = chance.randrange(2000) if chance.random() < 0.05 else 0
        at = begin + timedelta(milliseconds=n * 1000 // RATE - age)
        stamp = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
        yield (f'{{"TollId":{chance.randrange(TOLLS)},"EntryTime":"{stamp}","LicensePlate":"BVM {n % 1000:04}","State":"PA",'
               f'"Make":"Tesla","VehicleType":{n % 3},"Toll":{n % 60 / 4},"Tag":"{n * 7919 % 1000000000:09}"}}').encode()


def rows_of(count):
    """How many rows are final: those of the minutes that end before the watermark."""
    last = (count - 1) / RATE - OUT_OF_ORDER_S
    return int(last // 60) * TOLLS


def fill(servers, topic, all_events):
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 1 << 20, "acks": "all",
                         "queue.buffering.max.messages": 200_000})
    for n, event in enumerate(all_events):
        while True:
            try:
                producer.produce(topic, event, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(PATIENCE)


def create(servers, *topics):
    config = {"message.timestamp.type": "LogAppendTime"}
    new = [NewTopic(topic, PARTITIONS, 1, config=config) for topic in topics]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(new).values():
        made.result(30)


def rows_in(consumer, topic):
    """An upper bound of the rows: offsets, markers of transactions included."""
    try:
        ends = (consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30)[1] for n in range(PARTITIONS))
        return sum(ends)
    except KafkaException:
        # A topic that was just created has no leader yet.
        return 0


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Node:
    def __init__(self, folder, number, jobs, hubs=()):
        self.http = PORT + 2 * number
        self.kafka = f"127.0.0.1:{self.http + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f'data = "{folder}/data"', "[http]", f'listen = "127.0.0.1:{self.http}"', "[kafka]", f'listen = "{self.kafka}"',
                 '[amqp]', 'listen = "off"']
        lines += [f"[hubs.{hub}]\npartitions = {PARTITIONS}" for hub in hubs]
        for name, text in jobs.items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name / "job.toml").write_text(text)
            lines.append(f'[jobs.{name}]\npath = "{folder}/{name}"')
        (folder / "highwater.toml").write_text("\n".join(lines))
        log = open(folder / "log", "ab")
        self.process = subprocess.Popen([BIN, "up", "-c", folder / "highwater.toml"], stdout=log, stderr=log)
        atexit.register(self.kill)
        began = time.time()
        while self.get("/healthz") is None:
            if time.time() - began > 60:
                raise SystemExit(f"the node does not answer, see {folder}/log")
            time.sleep(0.01)
        self.cpu = cpu_seconds(self.process.pid)

    def get(self, path):
        if self.process.poll() is not None:
            raise SystemExit("a node ended")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
                return answer.read()
        except OSError:
            return None

    def used(self):
        return cpu_seconds(self.process.pid) - self.cpu

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


class Peer:
    """Another engine, in processes of its own."""

    def __init__(self, command, log):
        self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        atexit.register(self.kill)

    def used(self):
        if self.process.poll() is not None:
            raise SystemExit("a peer ended, see its log")
        return sum(cpu_seconds(pid) for pid in self.pids())

    def pids(self):
        """Those of its session."""
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, rest = stat.read_text().split(" ", 1)
            except OSError:
                continue
            if int(rest.rsplit(")", 1)[1].split()[3]) == self.process.pid:
                yield int(pid)

    def kill(self):
        for pid in list(self.pids()):
            os.kill(pid, signal.SIGKILL)
        self.process.wait(timeout=60)

    stop = kill


def job_file(name, source, target, more=""):
    return (f'name = "{name}"\nstart = "beginning"\nsql = """{QUERY}"""\n[time]\nlate_arrival = "12h"\nout_of_order = '
            f'"{OUT_OF_ORDER_S}s"\n[checkpoint]\nevery = "1s"\n[inputs.Input]\n{source}\n[outputs.output]\n{target}\n'
            f'key = "TollId"\n{more}')


def over_topics(servers, name, topic, more=""):
    cluster = f'type = "kafka"\nservers = ["{servers}"]\n'
    return job_file(name, f'{cluster}topic = "toll"', f'{cluster}topic = "{topic}"', more)


def until_rows(servers, topic, expected):
    """Waits for the rows. Returns the events a second between the first rows and the last: starts are not measured."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "measure"})
    began, first = time.time(), None
    while (rows := rows_in(consumer, topic)) < expected:
        now = time.time()
        if rows >= TOLLS and first is None:
            first = (now, rows)
        if now - began > PATIENCE:
            raise SystemExit(f"{rows} rows of {expected} in {topic}")
        time.sleep(0.005)
    ended = time.time()
    consumer.close()
    first = first or (began, 0)
    return (expected - first[1]) / TOLLS * 60 * RATE / (ended - first[0])


class Bench:
    def __init__(self, servers, folder, count):
        self.servers, self.folder, self.count = servers, folder, count
        self.expected = rows_of(count)
        self.broker = int((folder / "kafka" / "pid").read_text())

    def measure(self, nodes, servers, topic, began):
        broker = cpu_seconds(self.broker)
        rate = until_rows(servers, topic, self.expected)
        wall = time.time() - began
        used = sum(node.used() for node in nodes)
        broker = cpu_seconds(self.broker) - broker
        for node in nodes:
            node.stop()
        return {"rate": rate, "wall": wall, "cpu": used, "broker": broker}

    def hub(self, number):
        out, job = f"out-{number}", f"w2-{number}"
        text = job_file(job, 'hub = "toll"', f'type = "hub"\nhub = "{out}"')
        node = Node(self.folder / "hub", 0, {job: text}, ["toll", out])
        return self.measure([node], node.kafka, out, time.time())

    def topics(self, number, kind, instances, more=""):
        topic = f"out-{kind}-{number}"
        create(self.servers, topic)
        name = f"{kind}-{number}"
        text = over_topics(self.servers, name, topic, more)
        nodes = [Node(self.folder / f"{name}-{n}", n, {name: text}) for n in range(instances)]
        return self.measure(nodes, self.servers, topic, time.time())

    def peer(self, number, kind, command):
        topic, name = f"out-{kind}-{number}", f"{kind}-{number}"
        create(self.servers, topic)
        log = open(self.folder / f"{name}.log", "ab")
        peer = Peer([str(part) for part in command(topic, name)], log)
        return self.measure([peer], self.servers, topic, time.time())

    def streams(self, number, guarantee):
        java = ["java", "-cp", f"{PEERS}/streams:{PEERS}/streams/jars/*", "Toll"]
        return self.peer(number, f"streams-{guarantee.replace('_', '-')}", lambda topic, name: [
            *java, self.servers, "toll", topic, name, self.folder / name, guarantee])

    def flink(self, number, guarantee):
        return self.peer(number, f"flink-{guarantee}", lambda topic, name: [
            f"{PEERS}/flink/bin/python", BENCH / "peers/flink.py", self.servers, "toll", topic, name,
            f"{PEERS}/flink-connector.jar", guarantee])

    def shared(self, number, instances, combiners):
        kind = f"shared-{instances}-{combiners}"
        state = f'[state]\npath = "{self.folder}/state"\nshared = true\nsession_timeout = "10s"\n'
        if combiners > 1:
            state += f"combiners = {combiners}\n"
        return self.topics(number, kind, instances, state)


def main():
    servers, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    count, rounds = int(sys.argv[3]), int(sys.argv[4])
    all_events = list(events(count))
    create(servers, "toll")
    fill(servers, "toll", all_events)
    if not PEERS:
        node = Node(folder / "hub", 0, {}, ["toll"])
        fill(node.kafka, "toll", all_events)
        node.stop()
    bench = Bench(servers, folder, count)
    cases = {
        "hub to hub": bench.hub,
        "topic to topic": lambda n: bench.topics(n, "topics", 1),
        "shared, one instance": lambda n: bench.shared(n, 1, 1),
        "shared, two instances": lambda n: bench.shared(n, 2, 1),
    }
    if PEERS:
        cases = {"topic to topic": cases["topic to topic"]}
        for guarantee in "at_least_once", "exactly_once_v2":
            cases[f"Kafka Streams, {guarantee}"] = lambda n, to=guarantee: bench.streams(n, to)
        for guarantee in "at-least-once", "exactly-once":
            cases[f"Flink SQL, {guarantee}"] = lambda n, to=guarantee: bench.flink(n, to)
    elif os.environ.get("BENCH_COMBINERS", "1") == "1":
        cases["shared, two instances, two combiners"] = lambda n: bench.shared(n, 2, 2)
    found = {case: [] for case in cases}
    # The first round is for the broker's JVM to warm up.
    for number in range(rounds + 1):
        for case, run in cases.items():
            figures = run(number)
            if number > 0:
                found[case].append(figures)
            print(f"{'warm-up, ' if number == 0 else ''}{case:40} {figures['rate'] / 1e6:6.2f} M events/s  {figures['wall']:5.1f} s in all  {figures['cpu'] / count * 1e6:6.3f} CPU s/M  "
                  f"broker {figures['broker'] / count * 1e6:6.3f} CPU s/M  load {os.getloadavg()[0]:.1f}", flush=True)
    median = {case: {key: statistics.median(figures[key] for figures in runs) for key in ("rate", "cpu")}
              for case, runs in found.items()}
    print("ratios of medians:")
    for case, against in [("topic to topic", "hub to hub"), ("shared, one instance", "hub to hub"),
                          ("shared, two instances", "shared, one instance"),
                          ("shared, two instances, two combiners", "shared, one instance"),
                          *((case, "topic to topic") for case in median if case.startswith(("Kafka Streams", "Flink")))]:
        if case in median and against in median:
            rate = median[case]["rate"] / median[against]["rate"]
            cpu = median[case]["cpu"] / median[against]["cpu"]
            print(f"  {case} against {against}: rate {rate:.2f}, CPU {cpu:.2f}")


if __name__ == "__main__":
    main()
