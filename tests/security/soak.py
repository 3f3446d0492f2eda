"""A soak: hostile clients beside a producer, two consumers and a job, which must hardly notice.

The well-behaved clients run alone first, then beside the hostile ones. At the end every acknowledged event is on the hub
and in the job's output, no request of the well-behaved failed, and the node's memory stayed below its bound. With
`--slower` p99 of the well-behaved stays within that factor of the undisturbed one.

Hostile clients have a process of their own, so that their work does not delay the measurement, at a low priority: on a network
they would have a machine of their own. They are bounded in number and rate, use loopback only, and end with the script.
"""

import argparse
import asyncio
import base64
import json
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time

import kafka_frames as kafka

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../jobs")
from node import Node, check  # noqa: E402

HOST = "127.0.0.1"
KEYS = {
    "app": ("app-secret", ["send", "listen"], ["in", "out"]),
    "ops": ("ops-secret", ["send", "listen", "manage", "deploy"], None),
    "evil": ("evil-secret", ["send", "listen"], ["evil"]),
}
JOB = """
query = "q.saql"
[inputs.i]
hub = "in"
[outputs.o]
type = "hub"
hub = "out"
"""
QUERY = "SELECT n, at INTO o FROM i"


def settings():
    keys = ""
    for name, (secret, rights, hubs) in KEYS.items():
        limit = f"hubs = {json.dumps(hubs)}\n" if hubs else ""
        keys += f'[[keys]]\nname = "{name}"\nsecret = "{secret}"\nrights = {json.dumps(rights)}\n{limit}'
    hubs = "".join(f"[hubs.{name}]\npartitions = 1\n" for name in ["in", "out", "evil"])
    return keys + hubs


def authorization(name, secret=None):
    pair = f"{name}:{secret or KEYS[name][0]}"
    return "authorization: Basic " + base64.b64encode(pair.encode()).decode()


class Http:
    """One connection that stays open."""

    def __init__(self, port, key):
        self.port, self.key, self.reader, self.writer = port, key, None, None

    async def call(self, method, path, body=b"", kind="application/json"):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(HOST, self.port)
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{authorization(self.key)}\r\n"
        head += f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status = int(answer.split(" ", 2)[1])
        length = next(line for line in answer.lower().split("\r\n") if line.startswith("content-length:"))
        return status, await self.reader.readexactly(int(length.split(":")[1]))

    def close(self):
        if self.writer:
            self.writer.close()
        self.writer = None


class WellBehaved:
    """Sends numbered events at a steady rate and measures acknowledgements, deliveries and the job's rows."""

    def __init__(self, port, rate):
        self.port, self.pause, self.next, self.acknowledged = port, 1 / rate, 0, []
        self.latencies = {"acknowledged": [], "consumed": [], "row of the job": []}
        self.failures = []

    async def produce(self):
        http = Http(self.port, "app")
        due = time.monotonic()
        while True:
            due = max(due + self.pause, time.monotonic() - 0.05)
            await asyncio.sleep(max(0, due - time.monotonic()))
            number, began = self.next, time.monotonic()
            self.next += 1
            event = json.dumps({"n": number, "at": began}).encode()
            try:
                status, answer = await http.call("POST", "/hubs/in/messages", event)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.failures.append(f"producer: {error!r}")
                http.close()
                continue
            if status == 201:
                self.latencies["acknowledged"].append(time.monotonic() - began)
                self.acknowledged.append(number)
            else:
                self.failures.append(f"producer: {status} {answer[:100]}")

    async def consume(self, hub, name):
        http, position = Http(self.port, "app"), 0
        while True:
            path = f"/hubs/{hub}/partitions/0/messages?from={position}&max=1000&wait=5s"
            try:
                status, answer = await http.call("GET", path)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.failures.append(f"consumer of {hub}: {error!r}")
                http.close()
                continue
            if status != 200:
                self.failures.append(f"consumer of {hub}: {status} {answer[:100]}")
                await asyncio.sleep(0.05)
                continue
            page, now = json.loads(answer), time.monotonic()
            position = page["next"]
            self.latencies[name] += [now - message["value"]["at"] for message in page["messages"]]

    def tasks(self):
        consumers = [("in", "consumed"), ("out", "row of the job")]
        return [self.produce()] + [self.consume(hub, name) for hub, name in consumers]

    def take_p99(self):
        """The 99th percentiles since the last call, in milliseconds, with how many were measured."""
        taken = {}
        for name, values in self.latencies.items():
            check(f"something was {name}", len(values) > 100)
            taken[name] = (statistics.quantiles(values, n=100)[98] * 1000, len(values))
            values.clear()
        return taken


async def forever(attack, pause):
    """Repeats an attack; whatever the node does to its connection is fine."""
    while True:
        try:
            await attack()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        await asyncio.sleep(pause)


async def unread(port, requests, seconds=8):
    """Writes requests and reads nothing."""
    _, writer = await asyncio.open_connection(HOST, port)
    try:
        async with asyncio.timeout(seconds):
            for request in requests:
                writer.write(request)
                await writer.drain()
            await asyncio.sleep(seconds)
    except TimeoutError:
        pass
    finally:
        writer.transport.abort()


async def trickle(port, head, body_byte):
    """A request a byte at a time."""
    _, writer = await asyncio.open_connection(HOST, port)
    try:
        for byte in head:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)
        for _ in range(100):
            writer.write(body_byte)
            await writer.drain()
            await asyncio.sleep(0.2)
    finally:
        writer.transport.abort()


async def idle(port, seconds):
    _, writer = await asyncio.open_connection(HOST, port)
    await asyncio.sleep(seconds)
    writer.transport.abort()


async def answered(port, frames, user="evil", password=None):
    """Logs in and sends frames, reading the answers."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        for frame in kafka.login(user, password or KEYS[user][0]) + frames:
            writer.write(frame)
            length = int.from_bytes(await reader.readexactly(4), "big")
            while length:
                length -= len(await reader.readexactly(min(length, 65536)))
    finally:
        writer.transport.abort()


async def http_once(port, request):
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    await reader.read(4096)
    writer.transport.abort()


def hostile(http, broker, connections):
    """Every attack, as tasks. Numbers and pauses bound what they cost."""
    openapi = b"GET /api/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    page = f"GET /hubs/evil/partitions/0/messages?from=0&max=10000 HTTP/1.1\r\nhost: localhost\r\n{authorization('evil')}\r\n\r\n"
    post = f"POST /hubs/evil/messages HTTP/1.1\r\nhost: localhost\r\n{authorization('evil')}\r\ncontent-length: 900000\r\n\r\n"
    guess = f"GET /api/hubs HTTP/1.1\r\nhost: localhost\r\n{authorization('app', 'guess')}\r\nconnection: close\r\n\r\n"
    names = [f"name-{number}" for number in range(50_000)]

    def some_names():
        return random.sample(names, 1000)

    def garbage():
        return random.randbytes(random.randrange(1, 4000))

    def name_request():
        return f"GET /hubs/{random.choice(names)}/partitions/0/messages HTTP/1.1\r\nhost: localhost\r\n{authorization('evil')}\r\nconnection: close\r\n\r\n"

    attacks = []
    attacks += [forever(lambda: unread(http, [openapi] * 200), 0.5) for _ in range(20)]
    attacks += [forever(lambda: unread(http, [page.encode()] * 20), 0.5) for _ in range(12)]
    attacks += [forever(lambda: unread(broker, kafka.login("evil", "evil-secret") + [kafka.metadata(["evil"] * 3000)] * 20), 0.5) for _ in range(6)]
    attacks += [forever(lambda: trickle(http, openapi, b"x"), 0.5) for _ in range(20)]
    attacks += [forever(lambda: trickle(http, post.encode(), b"x"), 0.5) for _ in range(20)]
    attacks += [forever(lambda: idle(http, 20), 0.2) for _ in range(connections // 2)]
    attacks += [forever(lambda: idle(broker, 20), 0.2) for _ in range(connections // 2)]
    attacks += [forever(lambda: answered(broker, [kafka.metadata(["evil"] * 3000)]), 0.3)]
    attacks += [forever(lambda: answered(broker, [kafka.describe_configs(["evil"] * 3000)]), 0.3)]
    attacks += [forever(lambda: answered(broker, [kafka.metadata(some_names()), kafka.describe_groups(some_names())]), 0.3)]
    attacks += [forever(lambda: http_once(http, name_request().encode()), 0.02)]
    attacks += [forever(lambda: http_once(port, garbage()), 0.05) for port in (http, broker)]
    attacks += [forever(lambda: http_once(http, guess.encode()), 0.05)]
    attacks += [forever(lambda: answered(broker, [], "app", "guess"), 0.2)]
    return attacks


class Memory:
    """The resident memory of the node, in MiB."""

    def __init__(self, pid):
        self.pid, self.most = pid, 0

    def now(self):
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20

    async def watch(self):
        while True:
            self.most = max(self.most, self.now())
            await asyncio.sleep(0.05)


async def fill_evil(port):
    """Pages that are worth not reading: 64 MB on the hub of the hostile key."""
    http, value = Http(port, "evil"), b"x" * 500_000
    for _ in range(128):
        status, answer = await http.call("POST", "/hubs/evil/messages", value, "application/octet-stream")
        check(f"a large event is taken: {status} {answer[:100]}", status == 201)
    http.close()


async def attack(arguments):
    """Every attack, until this process is killed, or a little longer than the soak."""
    os.nice(10)
    attacks = hostile(arguments.port, arguments.port + 1, arguments.connections)
    tasks = [asyncio.create_task(task) for task in attacks]
    await asyncio.wait(tasks, timeout=arguments.seconds + 10, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        if task.done():
            task.result()


async def soak(node, arguments):
    await fill_evil(arguments.port)
    ops = Http(arguments.port, "ops")
    body = json.dumps({"files": {"job.toml": JOB, "q.saql": QUERY}, "start": "beginning"}).encode()
    status, answer = await ops.call("PUT", "/api/jobs/app-rows", body)
    check(f"the job starts: {status} {answer[:400]}", status == 200)
    ops.close()
    good, memory = WellBehaved(arguments.port, arguments.rate), Memory(node.process.pid)
    tasks = [asyncio.create_task(task) for task in good.tasks() + [memory.watch()]]
    await asyncio.sleep(2)
    for values in good.latencies.values():
        values.clear()
    await asyncio.sleep(arguments.seconds / 2)
    alone, quiet_memory = good.take_p99(), memory.most
    check(f"nothing fails without hostile clients: {good.failures[:3]}", not good.failures)
    attackers = await asyncio.create_subprocess_exec(sys.executable, __file__, *sys.argv[1:], "--attack")
    await asyncio.sleep(arguments.seconds)
    beside = good.take_p99()
    check("the node runs", node.is_up())
    check("the hostile clients run", attackers.returncode is None)
    attackers.kill()
    await attackers.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(f"memory: {quiet_memory:.0f} MiB alone, at most {memory.most:.0f} MiB beside hostile clients")
    for name, (before, count) in alone.items():
        after, count_after = beside[name]
        print(f"p99 {name}: {before:.1f} ms of {count} alone, {after:.1f} ms of {count_after} beside, {after / before:.1f}x")
    print(f"failed requests of the well-behaved: {len(good.failures)} {good.failures[:3]}")
    for hub in ["in", "out"]:
        numbers = await read_numbers(arguments.port, hub, good.acknowledged)
        lost = set(good.acknowledged) - numbers
        check(f"every acknowledged event is on {hub}: {len(lost)} of {len(good.acknowledged)} are lost", not lost)
    print(f"{len(good.acknowledged)} acknowledged events, none lost")
    check(f"memory stays below {arguments.memory_mib} MiB", memory.most < arguments.memory_mib)
    check("no request of the well-behaved fails", not good.failures)
    if arguments.slower:
        slower = [name for name in alone if beside[name][0] > max(alone[name][0], 1) * arguments.slower]
        check(f"p99 stays within {arguments.slower}x: {slower}", not slower)


async def read_numbers(port, hub, wanted):
    """The numbers on a hub, once those that are wanted are there, or after a minute."""
    http, numbers, position, end = Http(port, "app"), set(), 0, time.monotonic() + 60
    while time.monotonic() < end and not numbers.issuperset(wanted):
        _, answer = await http.call("GET", f"/hubs/{hub}/partitions/0/messages?from={position}&max=10000&wait=1s")
        page = json.loads(answer)
        position = page["next"]
        numbers |= {message["value"]["n"] for message in page["messages"]}
    http.close()
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--port", type=int, default=29392)
    parser.add_argument("--seconds", type=float, default=20, help="beside hostile clients; half of it alone first")
    parser.add_argument("--rate", type=float, default=100, help="events a second")
    parser.add_argument("--connections", type=int, default=1200, help="idle ones")
    parser.add_argument("--memory-mib", type=float, default=700)
    parser.add_argument("--slower", type=float, help="the factor that p99 may grow by; unset: it is only printed")
    parser.add_argument("--attack", action="store_true", help="be the hostile clients of a soak that runs")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if arguments.attack:
        return asyncio.run(attack(arguments))
    folder = tempfile.mkdtemp(prefix="highwater-soak-")
    node = Node(arguments.binary, folder, arguments.port, settings(), kafka=f"{HOST}:{arguments.port + 1}").start()
    try:
        asyncio.run(soak(node, arguments))
    finally:
        if node.is_up():
            node.stop()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
