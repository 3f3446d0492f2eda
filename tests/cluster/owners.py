"""The checks of tests/cluster/owners: owners.py SERVERS FOLDER [--large] [--seed N]

Queue: clients/queue_ledger.py has what must hold. Workflow: every start that was acknowledged ends; a completed delivery has its
package, its drone and its delivery at the services, and one that was refused or failed has none of them. Take-over: after a
kill the other node runs everything within the session and five seconds.
"""

import http.client
import http.server
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from queue_ledger import Book, drain, receive, send, verdict  # noqa: E402

SERVERS, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
LARGE = "--large" in sys.argv
SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else random.randrange(1 << 32)
ROUNDS = 30 if LARGE else 4
BIN = os.environ["HIGHWATER_BIN"]
PORT = int(os.environ["CLUSTER_PORT"]) + 6
SESSION = 6
# Five seconds of the promise; a debug build on a busy machine gets more.
SLACK = float(os.environ.get("TAKE_OVER_SLACK", "5"))


class Services:
    """The five services of the drone example: idempotent, sometimes away, and a deleted id stays closed."""

    def __init__(self):
        self.lock = threading.Lock()
        self.random = random.Random(SEED)
        self.kept = {"packages": set(), "dronedeliveries": set(), "deliveries": set()}
        self.closed = {kind: set() for kind in self.kept}

    def answer(self, method, path):
        url = urllib.parse.urlparse(path)
        _, _, kind, *rest = url.path.split("/")
        with self.lock:
            if self.random.random() < 0.1:
                return 503, None
            if kind == "accounts":
                return 200, not rest[0].endswith("suspended")
            if kind == "thirdparty":
                return 200, rest[0].endswith("-far")
            delivery = urllib.parse.parse_qs(url.query)["delivery"][0] if url.query else rest[0].removeprefix("p-")
            if method == "DELETE":
                self.kept[kind].discard(delivery)
                self.closed[kind].add(delivery)
                return 200, None
            if delivery in self.closed[kind]:
                return 410, None
            if kind == "dronedeliveries" and delivery.endswith("-nodrone"):
                return 400, None
            self.kept[kind].add(delivery)
            return (200, f"drone-of-{delivery}") if kind == "dronedeliveries" else (201, None)

    def serve(self):
        services = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                status, body = services.answer(self.command, self.path)
                text = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_DELETE = do

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT + 2), Handler)
        server.handle_error = lambda *_: None  # a killed node hangs up
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Node:
    def __init__(self, number):
        self.port = PORT + number
        self.folder = FOLDER / f"node-{number}"
        self.folder.mkdir()
        definition = (ROOT / "examples/drone-delivery/workflows/delivery.toml").read_text()
        for port in range(7401, 7406):
            definition = definition.replace(f"127.0.0.1:{port}", f"127.0.0.1:{PORT + 2}")
        (self.folder / "delivery.toml").write_text(definition)
        (self.folder / "highwater.toml").write_text(
            f'log = "kafka://{SERVERS}"\ndata = "{self.folder}/data"\n[cluster]\nprefix = "owners."\nreplication = 3\n'
            f'node = "node-{number}"\nsession = "{SESSION}s"\n[http]\nlisten = "127.0.0.1:{self.port}"\n'
            '[queues.q]\nlock = "3s"\ndeliveries_max = 1000000\n[workflows.delivery]\nfile = "delivery.toml"\n'
            + "".join(f"[queues.other-{n}]\n" for n in range(6)))
        self.start()

    def start(self):
        log = open(self.folder / "log", "a")
        command = [BIN, "up", "-c", str(self.folder / "highwater.toml")]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(900):
            if self.process.poll() is not None:
                raise SystemExit((self.folder / "log").read_text())
            if self.get("/readyz") is not None:
                return
            time.sleep(0.1)
        raise SystemExit(f"{self.folder.name} does not start: " + (self.folder / "log").read_text()[-3000:])

    def get(self, path):
        """The answer, or None if there is none of success."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            return json.loads(body) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def has_all(self):
        """Whether this node runs every queue and workflow."""
        view = self.get("/api/cluster") or {"rows": []}
        rows = [row for row in view["rows"] if row["kind"] in ("queue", "workflow")]
        return len(rows) == 8 and all(row["state"] == "running" and row["node"] == self.folder.name for row in rows)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


class Deliveries:
    """Starts instances until they are acknowledged."""

    def __init__(self, ports):
        self.ports = ports
        self.acknowledged = []

    def start_until(self, stop):
        number = 0
        while not stop.is_set():
            kind = random.choice(["", "", "", "-far", "-nodrone"])
            owner = random.choice(["anna", "anna", "anna", "otto-suspended"])
            name = f"d{number}{kind}"
            number += 1
            if self.start(name, owner, stop):
                self.acknowledged.append(name)
            time.sleep(0.05)

    def start(self, name, owner, stop):
        place = {"latitude": 1, "longitude": 2}
        body = json.dumps({
            "deliveryId": name, "ownerId": owner, "pickupLocation": place, "dropoffLocation": place, "deadline": "",
            "expedited": False, "confirmationRequired": "None",
            "packageInfo": {"packageId": f"p-{name}", "size": "small", "weight": 1, "tag": ""},
        })
        while not stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", random.choice(self.ports), timeout=10)
            try:
                connection.request("PUT", f"/workflows/delivery/{name}", body, {"content-type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status in (200, 201):
                    return True
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.1)
        return False


def take_over(dead, alive, since):
    """Waits until the other node has everything, and returns how long it took."""
    while not alive.has_all():
        if time.time() - since > SESSION + SLACK + 60:
            raise SystemExit(f"{alive.folder.name} does not take over from {dead.folder.name}: {alive.get('/api/cluster')}")
        time.sleep(0.1)
    return time.time() - since


def both_have_some(nodes):
    """Waits until the nodes share everything again."""
    for _ in range(600):
        view = nodes[0].get("/api/cluster") or {"rows": []}
        rows = [row for row in view["rows"] if row["kind"] in ("queue", "workflow")]
        owners = {row["node"] for row in rows}
        if len(rows) == 8 and len(owners) == 2 and all(row["state"] == "running" for row in rows):
            return
        time.sleep(0.1)
    raise SystemExit(f"the nodes do not share: {view}")


def disturb(nodes, chaos, took):
    """One round. Returns what was done."""
    victim, other = chaos.sample(nodes, 2)
    what = chaos.choice(["kill", "kill", "stop", "freeze", "restart"])
    since = time.time()
    if what == "restart":  # killed and back within its session
        victim.process.kill()
        victim.process.wait()
        victim.start()
    elif what == "kill":
        victim.process.kill()
        victim.process.wait()
        took.append(take_over(victim, other, since))
        victim.start()
    elif what == "stop":
        victim.process.terminate()
        victim.process.wait(timeout=60)
        take_over(victim, other, since)
        victim.start()
    else:
        victim.process.send_signal(signal.SIGSTOP)
        take_over(victim, other, since)
        time.sleep(1 + 2 * chaos.random())
        victim.process.send_signal(signal.SIGCONT)
    both_have_some(nodes)
    return f"{what} of {victim.folder.name}"


def check_deliveries(nodes, deliveries, services):
    wrong, states = [], {}
    deadline = time.time() + 120
    for name in deliveries.acknowledged:
        while True:
            shown = random.choice(nodes).get(f"/workflows/delivery/{name}")
            if shown and shown["state"] in ("completed", "refused", "failed"):
                break
            if time.time() > deadline:
                wrong.append(f"{name} has not ended: {shown and shown['state']}")
                break
            time.sleep(0.05)
        if not shown:
            continue
        states[shown["state"]] = states.get(shown["state"], 0) + 1
        kept = [name in ids for ids in services.kept.values()]
        if shown["state"] == "completed" and not all(kept) or shown["state"] in ("refused", "failed") and any(kept):
            wrong.append(f"{name} is {shown['state']}, and the services have {kept}")
    print(f"{len(deliveries.acknowledged)} deliveries: {states}, {len(wrong)} wrong")
    return wrong


def main():
    print(f"seed {SEED}")
    chaos, services = random.Random(SEED), Services()
    services.serve()
    nodes = [Node(0), Node(1)]
    ports = [node.port for node in nodes]
    book, stop, took = Book(), threading.Event(), []
    deliveries = Deliveries(ports)
    try:
        both_have_some(nodes)
        workers = [threading.Thread(target=work, args=(book, stop, ports)) for work in (send, receive) for _ in range(3)]
        workers.append(threading.Thread(target=deliveries.start_until, args=(stop,)))
        for worker in workers:
            worker.start()
        for number in range(ROUNDS):
            time.sleep(0.5 + chaos.random())
            what = disturb(nodes, chaos, took)
            print(f"round {number + 1} of {ROUNDS}: {what}, {len(book.acknowledged)} messages", flush=True)
        stop.set()
        for worker in workers:
            worker.join()
        time.sleep(4)  # the last locks run out
        wrong = verdict(book, drain(book, ports))
        wrong += check_deliveries(nodes, deliveries, services)
    finally:
        stop.set()
        for node in nodes:
            node.end()
    print("take-over after kill -9: " + ", ".join(f"{seconds:.1f} s" for seconds in took))
    wrong += [f"a take-over took {seconds:.1f} s" for seconds in took if seconds > SESSION + SLACK]
    for line in wrong[:20]:
        print(line)
    if wrong:
        for node in nodes:
            print(f"{node.folder.name}: " + (node.folder / "log").read_text()[-4000:])
    sys.exit(1 if wrong else 0)


main()
