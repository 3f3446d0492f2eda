"""Live jobs under kill -9 (T8, S4).

A fixed input log is made once: three partitions, disorder, late and early events, garbage, and silence said in the log
itself. A job over it writes to a hub, to lines of JSON and to Parquet. It is run undisturbed on one copy of the log; on
another copy the node is killed at random moments, and started again, so many times. In the end both must have the same bytes.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

EVENTS = 300_000
PARTITIONS = 3

JOB = """query = "q.saql"
start = "beginning"

[time]
late_arrival = "2s"
out_of_order = "1s"

[checkpoint]
every = "200ms"

[inputs.readings]
hub = "readings"

[outputs.sums]
type = "hub"
hub = "sums"

[outputs.lines]
type = "files"
path = "{out}/lines"
format = "jsonl"
every = "1s"

[outputs.table]
type = "files"
path = "{out}/table"
format = "parquet"
every = "2s"
"""

QUERY = """WITH perDevice AS (
    SELECT device, System.Timestamp() AS t, COUNT(*) AS n, SUM(value) AS total, MAX(value) AS most
    FROM readings TIMESTAMP BY at
    GROUP BY device, TumblingWindow(millisecond, 100)
)
SELECT * INTO sums FROM perDevice
SELECT device, t, total INTO lines FROM perDevice WHERE n > 1
SELECT device, LAG(total) OVER (PARTITION BY device LIMIT DURATION(minute, 1)) AS before, total INTO table FROM perDevice
"""


class Node:
    """A node on a folder; the port is the same in all its lives."""

    def __init__(self, binary, folder, port):
        self.binary, self.folder, self.port = binary, folder, port
        self.process = None
        settings = f"""data = "{folder}/data"
http = {{ listen = "127.0.0.1:{port}" }}
kafka = {{ listen = "off" }}

[hubs.readings]
partitions = {PARTITIONS}

[hubs.sums]
partitions = 1
"""
        write(f"{folder}/highwater.toml", settings)

    def start(self):
        log = open(f"{self.folder}/log", "ab")
        arguments = [self.binary, "up", "-c", f"{self.folder}/highwater.toml"]
        self.process = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def wait_ready(self):
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"the node ended: see {self.folder}/log")
            try:
                self.call("GET", "/readyz")
                return
            except OSError:
                time.sleep(0.02)
        sys.exit("the node does not become ready")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def call(self, method, path, body=None, kind="application/json"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, data=body)
        request.add_header("content-type", kind)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def job(self):
        return self.call("GET", "/api/jobs/kills")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def fill(node, chance):
    """The input log: batches of events with times around now, some of them wrong in every way."""
    sent, total = 0, EVENTS
    while sent < total:
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


def hand_over(node, out):
    files = {"job.toml": JOB.format(out=out), "q.saql": QUERY}
    node.call("PUT", "/api/jobs/kills", json.dumps({"files": files}).encode())


def wait_done(node):
    """Until everything is read, time has passed the last event, and nothing new comes any more."""
    last, since = None, time.time()
    while True:
        job = node.job()
        if job["state"] == "failed":
            sys.exit(f"the job failed: {job}")
        seen = (job["backlog"], [output["next"] for output in job["outputs"]])
        waits = any(output["waiting"] for output in job["outputs"])
        if seen != last or job["backlog"] or waits or job["state"] != "running":
            last, since = seen, time.time()
        if time.time() - since > 5:
            return job
        time.sleep(0.1)


def outputs(node, out):
    """Everything the job wrote, by name."""
    found, start = {}, 0
    rows = hashlib.sha256()
    count = 0
    while True:
        page = node.call("GET", f"/hubs/sums/partitions/0/messages?from={start}&max=10000")
        for message in page["messages"]:
            rows.update(json.dumps(message["value"]).encode())
            count += 1
        if page["next"] == start:
            break
        start = page["next"]
    found["hub"] = (count, rows.hexdigest())
    for folder in ["lines", "table"]:
        for name in sorted(os.listdir(f"{out}/{folder}")):
            with open(f"{out}/{folder}/{name}", "rb") as file:
                content = file.read()
            found[f"{folder}/{name}"] = (len(content), hashlib.sha256(content).hexdigest())
    return found


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--port", type=int, default=29292)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    chance = random.Random(given.seed)
    base = tempfile.mkdtemp()
    node = None
    try:
        node = Node(given.binary, f"{base}/input", given.port)
        node.start()
        node.wait_ready()
        fill(node, chance)
        node.stop()

        calm = f"{base}/calm"
        shutil.copytree(f"{base}/input/data", f"{calm}/data")
        node = Node(given.binary, calm, given.port)
        node.start()
        node.wait_ready()
        hand_over(node, f"{calm}/out")
        wait_done(node)
        node.stop()
        node.start()
        node.wait_ready()
        expected = outputs(node, f"{calm}/out")
        node.stop()
        print(f"undisturbed: {expected['hub'][0]} rows, {len(expected) - 1} files", flush=True)

        wild = f"{base}/wild"
        shutil.copytree(f"{base}/input/data", f"{wild}/data")
        node = Node(given.binary, wild, given.port)
        node.start()
        node.wait_ready()
        hand_over(node, f"{wild}/out")
        for kill in range(given.kills):
            # Early in the life of the node as well as late in that of the job.
            time.sleep(chance.choice([0.02, 0.1, 0.3, 0.6]) * chance.random() * 2)
            node.kill()
            node.start()
            if chance.random() < 0.7:
                node.wait_ready()
        node.wait_ready()
        wait_done(node)
        node.stop()
        node.start()
        node.wait_ready()
        found = outputs(node, f"{wild}/out")
        node.stop()
        node = None
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                sys.exit(f"{name} differs: {expected.get(name)} undisturbed, {found.get(name)} after the kills; see {base}")
        print(f"{given.kills} kills: the same bytes in {len(found)} places")
        shutil.rmtree(base)
    finally:
        if node and node.process and node.process.poll() is None:
            node.kill()


if __name__ == "__main__":
    main()
