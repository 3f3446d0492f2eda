"""One job on several instances over a cluster of Apache Kafka, beside the same job over hubs of one node that nothing disturbs.

    instances.py BOOTSTRAP DIR [--rounds N]

Instances are killed with kill -9, stopped with SIGSTOP and woken when others have their work, stopped in order and
started again, and a broker is killed and brought back. Reference data gets snapshots meanwhile. The output, read committed, must
be byte for byte that of the undisturbed run, in every partition. The jobs name topics of the cluster; or they are those of the
undisturbed run, unchanged, on nodes whose log is the cluster.
"""

import atexit
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import urllib.request

from confluent_kafka import Producer

import checks
from checks import HERE, PARTITIONS, PATIENCE, compare, create, ends, events, hub_job, job_file, read_committed, topic_in, \
    topic_out, until

SESSION = 6
# With which the first two instances start for the first time, as before an upgrade.
BEFORE = os.environ.get("HIGHWATER_BEFORE", checks.BIN)
BASE_PORT = int(os.environ["CLUSTER_PORT"]) + 10

# In the partitions, and where they are combined.
PRICES = """
WITH w AS (SELECT Device, COUNT(*) AS Events FROM e TIMESTAMP BY At GROUP BY Device, TumblingWindow(second, 5))
SELECT w.Device AS Device, w.Events AS Events, p.Price AS Price, System.Timestamp() AS Time INTO out
FROM w JOIN p ON w.Device = p.Device
"""
RATED = """
SELECT e.Device AS Device, e.Value AS Value, p.Price AS Price, System.Timestamp() AS Time INTO out
FROM e TIMESTAMP BY At JOIN p ON e.Device = p.Device
"""
QUERIES = {**checks.QUERIES, "prices": PRICES, "rated": RATED}


class Snapshots:
    """Reference data with a snapshot for every minute of the events."""

    def __init__(self, folder, sent):
        self.folder = folder
        times = sorted(event["At"] for _, event in sent[:-PARTITIONS])
        self.minutes = sorted({time[:16] for time in times})
        self.write(self.minutes[0])

    def write(self, minute):
        target = self.folder / minute[:10] / f"{minute[11:13]}-{minute[14:16]}"
        target.mkdir(parents=True, exist_ok=True)
        price = self.minutes.index(minute) + 1
        lines = (json.dumps({"Device": device, "Price": price}) for device in [*(f"device-{n}" for n in range(13)), "end"])
        (target / "new").write_text("\n".join(lines) + "\n")
        (target / "new").rename(target / "p.jsonl")

    def before(self, event, instances, jobs):
        """Writes the snapshot of the minute in which the event is, if it is the first, and waits until jobs know of it."""
        minute = event["At"][:16]
        if minute not in self.minutes[1:] or (self.folder / minute[:10] / f"{minute[11:13]}-{minute[14:16]}").exists():
            return
        self.write(minute)
        told = f"of {minute}:00.0000000Z takes effect then"
        knows = lambda job: any(told in line["text"] for instance in instances if instance.runs
                                for line in instance.log(job))
        for job in jobs:
            until(lambda: knows(job), f"{job} has the snapshot of {minute}")

    def input(self):
        return f'[inputs.p]\nreference = true\npath = "{self.folder}/{{date}}/{{time}}/p.jsonl"\nrefresh = "200ms"\n'


class Instance:
    """A node that has the jobs together with the other instances."""

    def __init__(self, folder, number, jobs, settings=""):
        """`settings` of a log that is a cluster come first."""
        self.folder = folder / f"instance-{number}"
        self.http = BASE_PORT + 2 * number
        self.folder.mkdir(parents=True)
        lines = [f'data = "{self.folder}/data"', settings, "[http]", f'listen = "127.0.0.1:{self.http}"']
        if not settings:
            lines += ["[kafka]", f'listen = "127.0.0.1:{self.http + 1}"']
        for name, text in jobs.items():
            (self.folder / name).mkdir()
            (self.folder / name / "job.toml").write_text(text)
            lines.append(f'[jobs.{name}]\npath = "{self.folder}/{name}"')
        (self.folder / "highwater.toml").write_text("\n".join(lines))
        self.process = None
        self.is_paused = False
        self.binary = BEFORE if number < 2 else checks.BIN

    def start(self):
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen([self.binary, "up", "-c", self.folder / "highwater.toml"], stdout=log, stderr=log)
        self.binary = checks.BIN
        self.is_paused = False
        atexit.register(self.end)
        until(lambda: self.get("/healthz") is not None, f"the instance, see {self.folder}/log")

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def pause(self):
        self.signal(signal.SIGSTOP)
        self.is_paused = True

    def wake(self):
        self.signal(signal.SIGCONT)
        self.is_paused = False

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=90)
        self.process = None

    @property
    def runs(self):
        return self.process is not None and not self.is_paused

    def get(self, path):
        if self.process.poll() is not None:
            raise SystemExit(f"an instance ended: {(self.folder / 'log').read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
                return answer.read()
        except OSError:
            return None

    def job(self, name):
        answer = self.get(f"/api/jobs/{name}")
        job = json.loads(answer) if answer else {}
        if job.get("state") == "failed":
            raise SystemExit(f"{name} failed on {self.folder}: {json.dumps(job)[-3000:]}")
        return job

    def log(self, name):
        answer = self.get(f"/api/jobs/{name}/logs")
        return json.loads(answer)["lines"] if answer else []


def positions(instances, name):
    """How far the instances have come in each partition, whoever has it."""
    found = {}
    for instance in instances:
        if not instance.runs:
            continue
        for one in instance.job(name).get("inputs", []):
            for partition in one["partitions"]:
                place = (partition["hub"], partition["partition"])
                found[place] = max(found.get(place, 0), partition["next"])
    return sorted(found.items())


def has_read(instances, name, sent_to):
    found = [next for _, next in positions(instances, name)]
    return len(found) == len(sent_to) and sum(found) >= sum(sent_to)


# The others have one combiner.
COMBINERS = {"counts": PARTITIONS, "changes": PARTITIONS}


def shared_job(servers, folder, name, query, suffix, more=""):
    state = f'[state]\npath = "{folder}/state"\nshared = true\nsession_timeout = "{SESSION}s"\n'
    state += f"combiners = {COMBINERS.get(name, 1)}\n"
    text = job_file(name, query, topic_in(servers, f"e-{suffix}"), topic_out(servers, f"out-{name}-{suffix}"))
    return text + state + more


class TopicJobs:
    """Jobs of nodes with logs of their own, from topic to topic. All have their own state."""

    def __init__(self, servers, folder, number, more):
        self.suffix = f"r{number}"
        self.settings = ""
        self.files = {self.job(name): shared_job(servers, folder, name, query, self.suffix, more).replace(
            f'name = "{name}"', f'name = "{self.job(name)}"') for name, query in QUERIES.items()}

    def deploy(self, instance):
        """The settings of every instance have them."""

    def topic(self, hub):
        return f"{hub}-{self.suffix}"

    def job(self, name):
        return f"{name}-{self.suffix}"


class HubJobs:
    """The files of the undisturbed jobs, deployed on one of the nodes with the same log and state."""

    def __init__(self, servers, folder, number, more):
        self.prefix = f"hubs-{number}."
        self.settings = f"""
log = "kafka://{servers}"
[cluster]
prefix = "{self.prefix}"
session = "{SESSION}s"
[state]
path = "{folder}/state-{self.prefix}"
shared = true
session_timeout = "{SESSION}s"
[jobs]
folders = ["{folder}"]
"""
        self.files = {}
        self.deployed = {name: hub_job(name, query, more) for name, query in QUERIES.items()}

    def deploy(self, instance):
        until(lambda: instance.get("/readyz") is not None, f"the node is ready, see {instance.folder}/log")
        for name, text in self.deployed.items():
            body = json.dumps({"files": {"job.toml": text}}).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{instance.http}/api/jobs/{name}", body, method="PUT")
            urllib.request.urlopen(request, timeout=60).close()

    def topic(self, hub):
        return f"{self.prefix}{hub}"

    def job(self, name):
        return name


def last_rows(servers, topic, expected):
    """The rows of a topic when there are as many as expected, and a little later: nothing may follow."""
    began = time.time()
    rows = []
    # The combiner may just be taken over.
    while time.time() - began < PATIENCE and sum(map(len, rows)) < sum(map(len, expected)):
        time.sleep(0.5)
        rows = [read_committed(servers, topic, partition) for partition in range(PARTITIONS)]
    time.sleep(2)
    return [read_committed(servers, topic, partition) for partition in range(PARTITIONS)]


def disturb(instances, chance, counts):
    """Does something to the instances, of which one at least goes on."""
    running = [instance for instance in instances if instance.runs]
    what = chance.choice(["kill", "pause", "stop", "start", "wake", "start", "wake"])
    if what == "kill" and len(running) > 1:
        chance.choice(running).kill()
    elif what == "pause" and len(running) > 1:
        chance.choice(running).pause()
    elif what == "stop" and len(running) > 1:
        chance.choice(running).stop()
    elif what == "wake" and any(instance.is_paused for instance in instances):
        chance.choice([instance for instance in instances if instance.is_paused]).wake()
    elif what == "start" and any(instance.process is None for instance in instances):
        chance.choice([instance for instance in instances if instance.process is None]).start()
    else:
        return
    counts[what] = counts.get(what, 0) + 1


def round_of(servers, folder, sent, expected, number, script, kind=TopicJobs):
    """Plays the events to instances that are disturbed as `script` says, or by chance."""
    own = folder / f"{kind.__name__}-{number}"
    snapshots = Snapshots(own / "prices", sent)
    jobs = kind(servers, own, number, snapshots.input())
    create(servers, jobs.topic("e"), *(jobs.topic(f"out-{name}") for name in QUERIES))
    instances = [Instance(own, n, jobs.files, jobs.settings) for n in range(3)]
    instances[0].start()
    jobs.deploy(instances[0])
    instances[1].start()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    chance, counts = random.Random(number), {}
    step = len(sent) // (len(script) if script else 12)
    for n, (partition, event) in enumerate(sent):
        snapshots.before(event, instances, [jobs.job("prices"), jobs.job("rated")])
        producer.produce(jobs.topic("e"), json.dumps(event).encode(), partition=partition)
        producer.poll(0)
        if n % 200 == 0:
            producer.flush(60)
            time.sleep(0.05)
        if n % step == step - 1:
            producer.flush(60)
            if script:
                for act in script[min(n // step, len(script) - 1)]:
                    act(instances, counts)
            else:
                time.sleep(chance.random() * 2)
                disturb(instances, chance, counts)
    producer.flush(60)
    for instance in instances:
        if instance.is_paused:
            instance.wake()
    sent_to = ends(servers, jobs.topic("e"))
    for name in QUERIES:
        until(lambda: has_read(instances, jobs.job(name), sent_to), f"{name} is read")
        found = last_rows(servers, jobs.topic(f"out-{name}"), expected[name])
        compare(f"{name}, {kind.__name__}, round {number}, {counts}", found, expected[name])
    for instance in instances:
        if instance.process is not None:
            instance.stop()


def small(servers, folder, sent, expected, cluster, kind):
    """One round with everything in it."""
    def kill(instances, counts):
        instances[0].kill()
        counts["kill"] = counts.get("kill", 0) + 1

    def join(instances, counts):
        instances[2].start()
        counts["join"] = 1

    def pause(instances, counts):
        instances[1].pause()
        time.sleep(SESSION + 5)
        counts["pause"] = 1

    def wake(instances, counts):
        instances[1].wake()
        counts["wake"] = 1

    def again(instances, counts):
        instances[0].start()

    def leave(instances, counts):
        instances[2].stop()
        counts["leave"] = 1

    def broker(instances, counts):
        subprocess.run([HERE / "kafka", "kill", "2", cluster], check=True)
        time.sleep(1)
        subprocess.run([HERE / "kafka", "restart", "2", cluster], check=True)
        counts["broker"] = 1

    script = [[], [kill], [join], [broker], [again], [pause], [wake], [leave], []]
    round_of(servers, folder, sent, expected, 0, script, kind)


def check_take_over(servers, folder):
    """The rows of a killed instance come from another within the session time-out and 5 s."""
    suffix = "take"
    create(servers, f"e-{suffix}", f"out-changes-{suffix}")
    text = shared_job(servers, folder, "changes", QUERIES["changes"], suffix).replace('"changes"', '"changes-take"', 1)
    # With one combiner the dead instance has at least one of the streams, whose rows are waited for.
    text = text.replace(f"combiners = {PARTITIONS}", "combiners = 1")
    instances = [Instance(folder / suffix, n, {"changes-take": text}) for n in range(2)]
    for instance in instances:
        instance.start()
    producer = Producer({"bootstrap.servers": servers})
    sent = list(events(400))[:-PARTITIONS]
    for partition, event in sent[:200]:
        producer.produce(f"e-{suffix}", json.dumps(event).encode(), partition=partition)
    producer.flush(30)
    sent_to = ends(servers, f"e-{suffix}")
    until(lambda: has_read(instances, "changes-take", sent_to), "the events are read")
    instances[0].kill()
    began = time.time()
    for partition, event in sent[200:]:
        producer.produce(f"e-{suffix}", json.dumps(event).encode(), partition=partition)
    producer.flush(30)
    sent_to = ends(servers, f"e-{suffix}")
    until(lambda: has_read(instances, "changes-take", sent_to), "another takes over")
    took = time.time() - began
    if took > SESSION + 5:
        raise SystemExit(f"the take-over took {took:.1f} s, with a session time-out of {SESSION} s")
    print(f"ok: after kill -9 another instance has read everything within {took:.1f} s")
    instances[1].stop()


def main():
    servers, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 0
    sent = list(events(6_000))
    all_snapshots = Snapshots(folder / "prices", sent)
    for minute in all_snapshots.minutes:
        all_snapshots.write(minute)
    expected = checks.embedded(folder / "embedded-instances", sent, QUERIES, all_snapshots.input())
    check_take_over(servers, folder / "instances")
    kinds = [TopicJobs, HubJobs]
    for kind in kinds:
        small(servers, folder / "instances", sent, expected, folder / "cluster", kind)
    for number in range(1, rounds + 1):
        round_of(servers, folder / "instances", sent, expected, number, None, kinds[number % len(kinds)])


if __name__ == "__main__":
    main()
