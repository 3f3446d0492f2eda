"""Live jobs on a real node that things happen to (T7, T8, S4).

Outputs that go away and come back, disks that are full, checkpoints that are damaged. Meanwhile the job says what is wrong;
in the end every row is there once where that is promised.
"""

import argparse
import calendar
import glob
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

from node import Node, check, until, write

HUBS = """
[hubs.in]
partitions = 1

[hubs.out]
partitions = 1

[hubs.logins]
partitions = 1

[hubs.alarms]
partitions = 1

[hubs.replayed]
partitions = 1

[hubs.versions]
partitions = 1
"""

JOB = """query = "q.saql"
start = "beginning"

[checkpoint]
every = "100ms"

[inputs.numbers]
hub = "in"

[outputs.out]
{output}
"""

TO_HUB = 'type = "hub"\nhub = "out"'
QUERY = "SELECT n INTO out FROM numbers"


def numbers(some):
    return [{"n": n} for n in some]


def saved(node, job, after=0):
    """A checkpoint that was begun after everything so far."""

    def newer():
        number = node.job(job)["checkpoint"]["number"]
        return number if number > after + 1 else None

    return until("a checkpoint", newer)


class Receiver:
    """A webhook that can be shut and opened; keeps rows by their numbers and notes contradictions."""

    def __init__(self):
        self.rows, self.server, self.faults = {}, None, []
        self.open(0)

    def open(self, port):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                first = int(self.headers["highwater-first-row"])
                for number, row in enumerate(json.loads(body), first):
                    if receiver.rows.setdefault(number, row) != row:
                        receiver.faults.append(number)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def shut(self):
        self.server.shutdown()
        self.server.server_close()


def webhook_away(node):
    """An output that is down: the job says so, others go on, and nothing is lost when it comes back."""
    receiver = Receiver()
    url = f'type = "webhook"\nurl = "http://127.0.0.1:{receiver.port}/"\ntimeout = "2s"'
    node.put("hooked", JOB.format(output=url), QUERY)
    node.put("beside", JOB.format(output=TO_HUB), QUERY)
    node.send("in", numbers(range(100)))
    until("the first rows", lambda: len(receiver.rows) == 100)
    receiver.shut()
    node.send("in", numbers(range(100, 5000)))
    until("an alarm", lambda: 'output "out"' in node.alarms("hooked"))
    until("it is counted", lambda: node.metric("highwater_job_alarms", job="hooked") == 1)
    until("retries are counted", lambda: node.metric("highwater_job_output_retries_total", job="hooked", output="out"))
    check("the job runs meanwhile", node.job("hooked")["state"] in ["running", "replaying"])
    beside = node.rows("out", 5000)
    check("a job beside it is not held up", [row["n"] for row in beside] == list(range(5000)))
    # The node may go as well while the output is away.
    node.kill()
    node.start()
    until("the alarm is back", lambda: 'output "out"' in node.alarms("hooked"))
    receiver.open(receiver.port)
    until("all rows", lambda: len(receiver.rows) == 5000)
    until("no alarm any more", lambda: not node.alarms("hooked"))
    check("every row under its number", [receiver.rows[n]["n"] for n in range(5000)] == list(range(5000)))
    check("no number had two rows", not receiver.faults)
    check("the hub has each row once", len(node.rows("out", 5000)) == 5000)
    node.call("DELETE", "/api/jobs/hooked")
    receiver.shut()
    print("a webhook was away: every row came, and the job beside it went on")


def damaged_checkpoint(node, folder):
    """The newest checkpoint is damaged: the one before is used, and the log says so."""
    before = saved(node, "beside")
    node.send("in", numbers(range(5000, 5100)))
    node.rows("out", 5100)
    saved(node, "beside", before)
    node.kill()
    newest = sorted(glob.glob(f"{folder}/data/jobs/beside/checkpoints/*.checkpoint"))[-1]
    with open(newest, "r+b") as file:
        file.seek(40)
        byte = file.read(1)
        file.seek(40)
        file.write(bytes([byte[0] ^ 1]))
    node.start()
    number = int(os.path.basename(newest).split(".")[0])
    until("it is told", lambda: f"checkpoint {number} cannot be used" in node.log_of("beside"))
    node.send("in", numbers(range(5100, 5200)))
    rows = [row["n"] for row in node.rows("out", 5200)]
    check("each row once", rows == list(range(5200)))
    print("the newest checkpoint was damaged: the one before was used")


def full_disk(node, folder):
    """No room for checkpoints: the job goes on, says so, and saves itself when there is room again."""
    place = f"{folder}/data/jobs/beside/checkpoints"
    node.stop()
    kept = f"{folder}/kept"
    shutil.copytree(place, kept)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        node.start()
        print("a full disk was not tried: this user may not mount one (the simulated disk in crates/job/tests/job/live is)")
        return
    try:
        for name in os.listdir(kept):
            shutil.copy(f"{kept}/{name}", place)
        node.start()
        saved(node, "beside", node.job("beside")["checkpoint"]["number"])
        stuffing = f"{place}/stuffing"
        with open(stuffing, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        until("an alarm", lambda: "checkpoint: " in node.alarms("beside"))
        until("it is counted", lambda: node.metric("highwater_job_alarms", job="beside") == 1)
        check("the job runs", node.job("beside")["state"] == "running")
        node.send("in", numbers(range(5200, 5300)))
        node.rows("out", 5300)
        # What is not saved is done again.
        node.kill()
        node.start()
        until("an alarm again", lambda: "checkpoint: " in node.alarms("beside"))
        os.remove(stuffing)
        until("no alarm any more", lambda: not node.alarms("beside"))
        saved(node, "beside", node.job("beside")["checkpoint"]["number"])
        node.send("in", numbers(range(5300, 5400)))
        rows = [row["n"] for row in node.rows("out", 5400)]
        check("each row once", rows == list(range(5400)))
        print("the disk for checkpoints was full: the job went on, and each row is there once")
    finally:
        if node.is_up():
            node.stop()
        shutil.rmtree(kept)
        shutil.copytree(place, kept)
        subprocess.run(["umount", place], check=True)
        shutil.rmtree(place)
        shutil.move(kept, place)
        node.start()


ABSENCE = """SELECT a.who AS who, System.Timestamp() AS at INTO alarms
FROM logins a TIMESTAMP BY t
LEFT JOIN logins b TIMESTAMP BY t ON a.who = b.who AND DATEDIFF(millisecond, a, b) BETWEEN 1 AND 3000
WHERE b.who IS NULL
"""

ABSENCE_JOB = """query = "q.saql"
start = "beginning"

[time]
late_arrival = "0s"

[inputs.logins]
hub = "logins"

[outputs.alarms]
type = "hub"
hub = "{hub}"
"""


def nobody_logs_in(node):
    """No event for a while is an event: told when it is due, and the same row for whoever reads the log later (T7)."""
    node.put("absence", ABSENCE_JOB.format(hub="alarms"), ABSENCE)
    until("it runs", lambda: node.job("absence")["state"] == "running")
    sent = int(time.time() * 1000)
    node.send("logins", [{"who": "eve", "t": iso(sent)}])
    rows = node.rows("alarms", 1)
    told = node.messages("alarms")[0]
    # The event may arrive later than it happened, and is then moved to its arrival.
    arrived = millis(node.messages("logins")[0]["enqueued"])
    due = millis(rows[0]["at"])
    check("it is due three seconds after the login", sent + 3000 <= due <= arrived + 3000)
    delay = millis(told["enqueued"]) - due
    print(f"no login for 3 s: told {delay} ms after it was due, with no event arriving")
    check("it is told soon after it is due, and not before", 0 <= delay < 10_000)
    node.put("again", ABSENCE_JOB.format(hub="replayed"), ABSENCE)
    check("a replay gives the same row", node.rows("replayed", 1) == rows)
    for name in ["absence", "again"]:
        node.call("DELETE", f"/api/jobs/{name}")


REFERENCE_JOB = """query = "q.saql"
start = "beginning"

[checkpoint]
every = "1h"

[inputs.numbers]
hub = "in"

[inputs.ref]
reference = true
path = "{folder}/ref/{{date}}/{{time}}/r.jsonl"
refresh = "50ms"

[outputs.out]
type = "hub"
hub = "versions"
"""


def new_reference_data(node, folder):
    """A snapshot that comes while the job runs counts from then on, and still does after a kill (S3)."""

    def snapshot(minutes_ago, version):
        place = time.strftime("%Y-%m-%d/%H-%M", time.gmtime(time.time() - 60 * minutes_ago))
        write(f"{folder}/ref/{place}/r.jsonl.next", json.dumps({"k": 1, "version": version}) + "\n")
        os.rename(f"{folder}/ref/{place}/r.jsonl.next", f"{folder}/ref/{place}/r.jsonl")

    snapshot(20, 1)
    query = "SELECT e.n AS n, r.version AS version INTO out FROM numbers e JOIN ref r ON r.k = e.k"
    node.put("refreshed", REFERENCE_JOB.format(folder=folder), query, start="now")
    runs = lambda: node.job("refreshed")["state"] == "running"
    until("it runs", runs)
    node.send("in", [{"n": 1, "k": 1}])
    node.rows("versions", 1)
    snapshot(10, 2)
    until("it is taken up", lambda: "is late and takes effect at" in node.log_of("refreshed") and runs())
    node.send("in", [{"n": 2, "k": 1}])
    node.rows("versions", 2)
    node.kill()
    node.start()
    node.send("in", [{"n": 3, "k": 1}])
    rows = [(row["n"], row["version"]) for row in node.rows("versions", 3)]
    check("every event met the data of its time, once", rows == [(1, 1), (2, 2), (3, 2)])
    node.call("DELETE", "/api/jobs/refreshed")
    print("reference data changed while the job ran: every event met that of its time, also after a kill")


def iso(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03}Z"


def millis(text):
    """Of a time such as 2026-01-31T10:00:00.123Z, with any number of digits behind the point."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    whole = calendar.timegm(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S"))
    return whole * 1000 + int((fraction + "000")[:3])


def postgres_restarts(node, folder):
    """A database that is restarted under a running job, and stopped for a while: each row once."""
    with open(f"{folder}/url") as file:
        url = file.read().strip()

    def sql(text):
        command = [os.environ["PSQL"], "-X", "-q", "-A", "-t", "-c", text, url]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    def control(*what):
        subprocess.run([f"{folder}/control", *what], check=True)

    sql("CREATE TABLE numbers (n bigint)")
    table = f'type = "postgres"\nconnection = "{url}"\ntable = "numbers"\ntimeout = "5s"'
    node.put("kept", JOB.format(output=table), QUERY)
    count = 0

    def more():
        nonlocal count
        node.send("in", numbers(range(count, count + 500)))
        count += 500

    def all_there():
        return len(sql("SELECT n FROM numbers")) == count

    more()
    until("the first rows", all_there)
    for how in ["fast", "immediate"]:
        control("restart", how)
        more()
        until("the rows after a restart", all_there)
    control("stop", "immediate")
    more()
    until("an alarm", lambda: 'output "out"' in node.alarms("kept"))
    node.kill()
    control("start")
    node.start()
    more()
    until("all rows", all_there)
    until("no alarm any more", lambda: not node.alarms("kept"))
    check("each row once and in order", sql("SELECT n FROM numbers ORDER BY ctid") == [str(n) for n in range(count)])
    print("PostgreSQL was restarted, killed and away: each row is there once")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("--port", type=int, default=29293)
    arguments.add_argument("--postgres", help="only what concerns PostgreSQL, with the server of this folder")
    given = arguments.parse_args()
    base = tempfile.mkdtemp()
    node = Node(given.binary, f"{base}/node", given.port, HUBS).start()
    try:
        if given.postgres:
            postgres_restarts(node, given.postgres)
        else:
            webhook_away(node)
            damaged_checkpoint(node, f"{base}/node")
            full_disk(node, f"{base}/node")
            nobody_logs_in(node)
            new_reference_data(node, f"{base}/node")
        node.stop()
        shutil.rmtree(base)
    finally:
        if node.is_up():
            node.kill()


if __name__ == "__main__":
    main()
