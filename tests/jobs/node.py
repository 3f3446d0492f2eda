"""A real node for the tests of live jobs: started, killed, asked."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

# What should take no time must not take for ever; a busy machine is no failure.
PATIENCE = 120


class Node:
    """A node on a folder; the port is the same in all its lives."""

    def __init__(self, binary, folder, port, settings, kafka="off"):
        self.binary, self.folder, self.port = binary, folder, port
        self.process = None
        listen = f'http = {{ listen = "127.0.0.1:{port}" }}\nkafka = {{ listen = "{kafka}" }}\n'
        # Jobs that come over HTTP read and write below the folder of the trial.
        folders = f'jobs.folders = ["{os.path.dirname(folder)}"]\n'
        write(f"{folder}/highwater.toml", f'data = "{folder}/data"\n{listen}{folders}{settings}')

    def start(self, wait=True):
        log = open(f"{self.folder}/log", "ab")
        arguments = [self.binary, "up", "-c", f"{self.folder}/highwater.toml"]
        self.process = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self):
        def ready():
            if self.process.poll() is not None:
                raise SystemExit(f"the node ended: see {self.folder}/log")
            try:
                self.call("GET", "/readyz")
                return True
            except OSError:
                return False

        until("the node is ready", ready)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)

    def is_up(self):
        return self.process is not None and self.process.poll() is None

    def call(self, method, path, body=None, kind="application/json"):
        text = self.text(method, path, body, kind)
        return json.loads(text or b"null")

    def text(self, method, path, body=None, kind="application/json"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, data=body)
        request.add_header("content-type", kind)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.read()

    def put(self, name, job, query, start=None):
        """Hands a job over, or another version of it."""
        body = {"files": {"job.toml": job, "q.saql": query}}
        if start:
            body["start"] = start
        return self.call("PUT", f"/api/jobs/{name}", json.dumps(body).encode())

    def job(self, name):
        return self.call("GET", f"/api/jobs/{name}")

    def alarms(self, name):
        return " ".join(self.job(name)["alarms"])

    def log_of(self, name):
        lines = self.call("GET", f"/api/jobs/{name}/logs")["lines"]
        return "\n".join(line["text"] for line in lines)

    def metric(self, name, **labels):
        """The value of one series; `None` if it is not there."""
        wanted = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
        for line in self.text("GET", "/metrics").decode().splitlines():
            if line.startswith(f"{name}{wanted} "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def send(self, hub, events, partition=0):
        body = "\n".join(json.dumps(event) for event in events).encode()
        self.call("POST", f"/hubs/{hub}/partitions/{partition}/messages", body, "application/x-ndjson")

    def messages(self, hub, partition=0):
        found, start = [], 0
        while True:
            page = self.call("GET", f"/hubs/{hub}/partitions/{partition}/messages?from={start}&max=10000")
            found += page["messages"]
            if page["next"] == start:
                return found
            start = page["next"]

    def rows(self, hub, count):
        """The rows on a hub of one partition, once there are so many."""

        def enough():
            rows = [message["value"] for message in self.messages(hub)]
            return rows if len(rows) >= count else None

        return until(f"{count} rows on {hub}", enough)


def until(what, holds):
    """Whatever is true of `holds` in the end; nothing goes by how long that takes."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"it does not come to be: {what}")


def check(what, holds):
    if not holds:
        raise SystemExit(f"not so: {what}")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
