"""What a job reads grows while it runs, and its node is killed (S3, S4, T8).

One job follows a folder: files are written on line by line, and files that are read as a whole are put in place. Another reads a
hub that gets more partitions. The node is killed at random moments meanwhile. In the end every line and every event must be one
row, in order, and the same jobs run as a batch over the log at rest must give the same rows.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import tempfile
import time

from kills import as_values, lines_in
from node import Node, check, until, write

SETTINGS = """
[hubs.readings]
partitions = 1

[hubs.lines]
partitions = 1

[hubs.rows]
partitions = 1
"""

# What a job reads, and what it makes of it.
FOLDER = ('[inputs.f]\npath = "{base}/drop"\n', "SELECT file, n INTO lines FROM f")
HUB = ('[inputs.readings]\nhub = "readings"\n', "SELECT id, PartitionId AS p INTO rows FROM readings TIMESTAMP BY at")
JOBS = {"lines": FOLDER, "rows": HUB}

START = 'name = "{name}"\nquery = "q.saql"\nstart = "beginning"\n[checkpoint]\nevery = "200ms"\n'
TO_HUB = '[outputs.{name}]\ntype = "hub"\nhub = "{name}"\n'
TO_FILES = '[outputs.{name}]\ntype = "files"\npath = "{base}/batch/{name}/out"\nevery = "off"\n'


class Trial:
    """What was written so far."""

    def __init__(self, base, chance):
        self.base, self.chance = base, chance
        self.lines = {}
        self.sent, self.partitions = 0, 1
        os.makedirs(f"{base}/drop")

    def job(self, name, outputs):
        return (START + JOBS[name][0] + outputs).format(base=self.base, name=name)

    def write_on(self):
        """Some lines more, the last of them in two strokes now and then."""
        file = self.chance.choice(["a.jsonl", "b.jsonl"])
        with open(f"{self.base}/drop/{file}", "a") as out:
            for _ in range(self.chance.randrange(1, 200)):
                text = json.dumps(self.next_line(file)) + "\n"
                cut = self.chance.randrange(len(text)) if self.chance.random() < 0.05 else 0
                out.write(text[:cut])
                out.flush()
                out.write(text[cut:])

    def put_whole(self):
        file = f"whole-{len(self.lines)}.json.gz"
        lines = [self.next_line(file) for _ in range(self.chance.randrange(1, 200))]
        hidden = f"{self.base}/drop/.{file}"
        with gzip.open(hidden, "wt") as out:
            json.dump(lines, out)
        os.rename(hidden, f"{self.base}/drop/{file}")

    def next_line(self, file):
        number = self.lines.get(file, 0)
        self.lines[file] = number + 1
        return {"file": file, "n": number}

    def send(self, node):
        events = []
        for _ in range(self.chance.randrange(1, 50)):
            now = time.time()
            at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
            events.append({"id": self.sent, "at": at})
            self.sent += 1
        node.send("readings", events, self.chance.randrange(self.partitions))

    def grow(self, node):
        self.partitions += self.chance.randrange(1, 3)
        node.call("PATCH", "/api/hubs/readings", json.dumps({"partitions": self.partitions}).encode())


def disturb(trial, node, kills):
    for _ in range(kills):
        for _ in range(trial.chance.randrange(2, 12)):
            trial.chance.choice([trial.write_on, trial.write_on, trial.put_whole, lambda: trial.send(node)])()
            if trial.chance.random() < 0.2:
                trial.grow(node)
            time.sleep(trial.chance.random() * 0.1)
        node.kill()
        node.start()


def rows_of(node, hub, count):
    return [json.dumps(row) for row in node.rows(hub, count)]


def each_line_once(trial, rows):
    found = {}
    for row in map(json.loads, rows):
        found.setdefault(row["file"], []).append(row["n"])
    check("there are lines of no other files", found.keys() == trial.lines.keys())
    for file, count in trial.lines.items():
        check(f"every line of {file} is one row, in order", found[file] == list(range(count)))


def as_a_batch(trial, binary, name, rows):
    """The log at rest, without the files."""
    folder = f"{trial.base}/batch/{name}"
    write(f"{folder}/job.toml", trial.job(name, TO_FILES))
    write(f"{folder}/q.saql", JOBS[name][1])
    command = [binary, "run", folder, "--data", f"{trial.base}/node/data"]
    ran = subprocess.run(command, capture_output=True, text=True)
    check(f"the batch runs: {ran.returncode} {ran.stderr}", ran.returncode == 0)
    check(f"a batch gives the same {name}", as_values(lines_in(f"{folder}/out")) == rows)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("--kills", type=int, default=15)
    arguments.add_argument("--port", type=int, default=29292)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    trial = Trial(tempfile.mkdtemp(), random.Random(given.seed))
    node = Node(given.binary, f"{trial.base}/node", given.port, SETTINGS).start()
    try:
        for name, (_, query) in JOBS.items():
            node.put(name, trial.job(name, TO_HUB), query)
        disturb(trial, node, given.kills)
        lines = rows_of(node, "lines", sum(trial.lines.values()))
        each_line_once(trial, lines)
        rows = rows_of(node, "rows", trial.sent)
        ids = sorted(json.loads(row)["id"] for row in rows)
        check("every event is one row", ids == list(range(trial.sent)))
        read = lambda: len(node.job("rows")["inputs"][0]["partitions"])
        until("all partitions are read", lambda: read() == trial.partitions)
        node.stop()
        shutil.rmtree(f"{trial.base}/drop")
        as_a_batch(trial, given.binary, "lines", lines)
        as_a_batch(trial, given.binary, "rows", rows)
        shutil.rmtree(trial.base)
    except SystemExit:
        print(f"seed {given.seed}; what there is to look at lies in {trial.base}")
        raise
    finally:
        if node.is_up():
            node.kill()
    print(
        f"{given.kills} kills: {len(lines)} lines of {len(trial.lines)} files and {len(rows)} events of "
        f"{trial.partitions} partitions, each once, and the same as a batch"
    )


if __name__ == "__main__":
    main()
