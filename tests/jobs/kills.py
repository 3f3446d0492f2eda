"""One log, one answer (T8, T14, S4).

A fixed input log is made once: three partitions, disorder, late and early events, garbage, and silence said in the log
itself. A job over it writes to a hub, to a queue, to lines of JSON, to Parquet and, where there is a server, to PostgreSQL. It is run
undisturbed on one copy of the log. Then everything is changed that must not show:

- on another copy the node is killed at random moments, and the job is given other numbers of threads and sizes of reads;
- a second job starts at a time in the middle, and gives the same rows from there on;
- the same query is run as a batch over the log at rest.

In the end all must have the same bytes.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from node import PATIENCE, Node, check, write

PARTITIONS = 3

HUBS = f"""
[hubs.readings]
partitions = {PARTITIONS}

[hubs.sums]
partitions = 1

[hubs.later]
partitions = 1

[queues.work]
"""

JOB = """query = "q.saql"
start = "beginning"

[time]
late_arrival = "2s"
out_of_order = "1s"

[checkpoint]
every = "200ms"

[inputs.readings]
hub = "readings"
"""

WORK = """
[work]
threads = {threads}
fetch_bytes = {fetch_bytes}
"""

TO_HUB = """
[outputs.sums]
type = "hub"
hub = "{hub}"
"""

TO_QUEUE = """
[outputs.work]
type = "queue"
queue = "work"
"""

TO_FILES = """
[outputs.{name}]
type = "files"
path = "{out}/{name}"
format = "{format}"
every = "{every}"
"""

TO_POSTGRES = """
[outputs.rows]
type = "postgres"
connection = "{url}"
table = "{table}"
"""

QUERY = """WITH perDevice AS (
    SELECT device, System.Timestamp() AS t, COUNT(*) AS n, SUM(value) AS total, MAX(value) AS most
    FROM readings TIMESTAMP BY at
    GROUP BY device, TumblingWindow(millisecond, 100)
),
compared AS (
    SELECT device, t, total, LAG(total) OVER (PARTITION BY device LIMIT DURATION(minute, 1)) AS before FROM perDevice
)
SELECT * INTO sums FROM perDevice
SELECT device, t, total, before INTO lines FROM compared WHERE total > 200
SELECT device, before, total INTO table FROM compared
SELECT device, t, most INTO work FROM perDevice WHERE device < 5
"""
ROWS = "SELECT device, t, n, total INTO rows FROM perDevice\n"


class Trial:
    """What all runs share."""

    def __init__(self, binary, port, base, postgres):
        self.binary, self.port, self.base, self.postgres = binary, port, base, postgres
        self.node = None
        # Windows and files of all events are complete at this time.
        self.over = None

    def node_on(self, name):
        self.node = Node(self.binary, f"{self.base}/{name}", self.port, HUBS)
        return self.node.start()

    def copy(self, of, name):
        shutil.copytree(f"{self.base}/{of}/data", f"{self.base}/{name}/data")

    def job(self, name, work="", at_rest=False):
        """The job file of a run; where there is no node, what would go to a hub and a queue goes to files."""
        out = f"{self.base}/{name}/out"
        job = JOB + work
        if at_rest:
            job += TO_FILES.format(name="sums", out=out, format="jsonl", every="off")
            job += TO_FILES.format(name="work", out=out, format="jsonl", every="off")
        else:
            job += TO_HUB.format(hub="sums") + TO_QUEUE
        job += TO_FILES.format(name="lines", out=out, format="jsonl", every="1s")
        job += TO_FILES.format(name="table", out=out, format="parquet", every="2s")
        if self.postgres:
            job += TO_POSTGRES.format(url=self.postgres, table=f"{name}_rows")
        return job

    def query(self):
        return QUERY + (ROWS if self.postgres else "")

    def make_table(self, name):
        if self.postgres:
            self.sql(f"CREATE TABLE {name}_rows (device bigint, t timestamptz, n bigint, total double precision)")

    def sql(self, text):
        command = [os.environ["PSQL"], "-X", "-q", "-A", "-t", "-c", text, self.postgres]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def written(self, name):
        """The files and the table of a run, by name."""
        found = {}
        for folder in ["lines", "table"]:
            for file in files(f"{self.base}/{name}/out/{folder}"):
                found[f"{folder}/{os.path.basename(file)}"] = digest(read(file))
        if self.postgres:
            found["postgres"] = digest(self.sql(f"SELECT * FROM {name}_rows ORDER BY ctid").encode())
        return found


def files(folder):
    return [f"{folder}/{name}" for name in sorted(os.listdir(folder))]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def digest(content):
    return (len(content), hashlib.sha256(content).hexdigest())


def fill(node, events, chance):
    """The input log: batches of events with times around now, some of them wrong in every way."""
    sent = 0
    while sent < events:
        partition = chance.randrange(PARTITIONS)
        lines = []
        for _ in range(chance.randrange(1, 400)):
            skew = chance.choice([0, 0, 0, 0, -0.5, -0.9, -3, 400, 0.3])
            at = time.time() + skew + chance.random() * 0.05
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03}Z"
            event = {"device": chance.randrange(50), "value": chance.randrange(1000) / 4, "at": text}
            lines.append(json.dumps(event) if chance.random() > 0.001 else '{"device": 1, "at": "never"}')
        body = "\n".join(lines).encode()
        node.call("POST", f"/hubs/readings/partitions/{partition}/messages", body, "application/x-ndjson")
        sent += len(lines)
        if chance.random() < 0.05:
            node.call("POST", f"/api/hubs/readings/partitions/{chance.randrange(PARTITIONS)}/punctuate", b"")
    # The latest event, the longest stretch of a file and some time on top.
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 5))


def wait_done(trial, name):
    """Until time has passed everything that was sent, and the outputs have all that comes of it."""
    last, since = None, time.monotonic()
    while True:
        job = trial.node.job(name)
        if job["state"] == "failed":
            sys.exit(f"the job failed: {job}")
        waits = any(output["waiting"] for output in job["outputs"])
        if (job["watermark"] or "") >= trial.over and not waits:
            return
        seen = (job["events"], job["watermark"], [output["next"] for output in job["outputs"]])
        if seen != last:
            last, since = seen, time.monotonic()
        if time.monotonic() - since > PATIENCE:
            sys.exit(f"the job comes no further: {job}")
        time.sleep(0.1)


def rows_of(node, hub):
    return [json.dumps(message["value"]) for message in node.messages(hub)]


def work_of(node):
    """The messages in the queue, with their ids."""
    found, start = [], 1
    while True:
        messages = node.call("GET", f"/queues/work/messages?from={start}&max=1000")["messages"]
        if not messages:
            return found
        found += [(message["id"], json.dumps(message["body"])) for message in messages]
        start = messages[-1]["sequence"] + 1


def lines_in(folder):
    return [line for file in files(folder) for line in read(file).decode().splitlines()]


def as_values(lines):
    return [json.dumps(json.loads(line)) for line in lines]


def undisturbed(trial):
    trial.copy("input", "calm")
    trial.make_table("calm")
    node = trial.node_on("calm")
    node.put("kills", trial.job("calm"), trial.query())
    wait_done(trial, "kills")
    node.stop()
    node.start()
    rows = rows_of(node, "sums")
    check("there is something to compare", len(rows) > 100)
    work, written = work_of(node), trial.written("calm")
    check("every message has an id of its own", len({id for id, _ in work}) == len(work) > 0)
    print(f"undisturbed: {len(rows)} rows, {len(work)} messages, {len(written)} other places", flush=True)
    return rows, work, written


def started_later(trial, rows, chance):
    """From some time on, on the node of the undisturbed run."""
    node = trial.node
    time_of = lambda row: json.loads(row)["t"]
    since = time_of(rows[chance.randrange(len(rows) // 4, 3 * len(rows) // 4)])
    job = JOB + TO_HUB.format(hub="later") + TO_FILES.format(
        name="lines", out=f"{trial.base}/later/out", format="jsonl", every="1s"
    )
    query = QUERY.split("SELECT device, before, total INTO table")[0]
    node.put("later", job, query, start=since)
    wait_done(trial, "later")
    # Stopping waits for the outputs.
    node.stop()
    node.start()
    expected = [row for row in rows if time_of(row) >= since]
    check(f"a start at {since} gives the same rows", rows_of(node, "later") == expected)
    expected = [line for line in lines_in(f"{trial.base}/calm/out/lines") if time_of(line) >= since]
    check(f"a start at {since} gives the same lines", lines_in(f"{trial.base}/later/out/lines") == expected)
    node.stop()
    print(f"started at {since}: the same {len(expected)} lines from there on", flush=True)


def as_a_batch(trial, rows, work, written, chance):
    """The log at rest, the word of silence in it included."""
    folder = f"{trial.base}/batch"
    trial.make_table("batch")
    settings = WORK.format(threads=chance.randrange(1, 4), fetch_bytes=chance.choice([5_000, 100_000]))
    write(f"{folder}/job.toml", trial.job("batch", settings, at_rest=True))
    write(f"{folder}/q.saql", trial.query())
    command = [trial.binary, "run", folder, "--data", f"{trial.base}/calm/data"]
    ran = subprocess.run(command, capture_output=True, text=True)
    # Garbage is in the log, so something is lost to it.
    check(f"the batch runs: {ran.returncode} {ran.stderr}", "lost" in ran.stderr)
    check("a batch over the same log gives the same rows", as_values(lines_in(f"{folder}/out/sums")) == rows)
    bodies = [body for _, body in work]
    check("a batch over the same log gives the same work", as_values(lines_in(f"{folder}/out/work")) == bodies)
    compare(written, trial.written("batch"), "as a batch")
    print("as a batch over the log at rest: the same bytes", flush=True)


def under_kills(trial, rows, work, written, kills, chance):
    trial.copy("input", "wild")
    trial.make_table("wild")
    node = trial.node_on("wild")

    def hand_over():
        settings = WORK.format(threads=chance.randrange(1, 5), fetch_bytes=chance.choice([1, 3_000, 50_000, 1 << 20]))
        node.put("kills", trial.job("wild", settings), trial.query())

    hand_over()
    changes = 0
    for _ in range(kills):
        # Early in the life of the node as well as late in that of the job.
        time.sleep(chance.choice([0.02, 0.1, 0.3, 0.6]) * chance.random() * 2)
        node.kill()
        node.start(wait=False)
        if chance.random() < 0.7:
            node.wait_ready()
            if chance.random() < 0.2:
                hand_over()
                changes += 1
    node.wait_ready()
    wait_done(trial, "kills")
    node.stop()
    node.start()
    check("the hub has the same rows after the kills", rows_of(node, "sums") == rows)
    check("the queue has the same messages after the kills", work_of(node) == work)
    compare(written, trial.written("wild"), "after the kills")
    node.stop()
    print(f"{kills} kills and {changes} changes of threads and sizes: the same bytes in {len(written) + 2} places")


def compare(expected, found, when):
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            sys.exit(f"{name} differs {when}: {expected.get(name)} undisturbed, {found.get(name)} then")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--events", type=int, default=300_000)
    arguments.add_argument("--port", type=int, default=29292)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--postgres", help="writes to the server of this folder as well")
    given = arguments.parse_args()
    chance = random.Random(given.seed)
    postgres = given.postgres and read(f"{given.postgres}/url").decode().strip()
    trial = Trial(given.binary, given.port, tempfile.mkdtemp(), postgres)
    try:
        node = trial.node_on("input")
        trial.over = fill(node, given.events, chance)
        node.stop()
        rows, work, written = undisturbed(trial)
        started_later(trial, rows, chance)
        as_a_batch(trial, rows, work, written, chance)
        under_kills(trial, rows, work, written, given.kills, chance)
        shutil.rmtree(trial.base)
    except SystemExit:
        print(f"what there is to look at lies in {trial.base}", file=sys.stderr)
        raise
    finally:
        if trial.node and trial.node.is_up():
            trial.node.kill()


if __name__ == "__main__":
    main()
