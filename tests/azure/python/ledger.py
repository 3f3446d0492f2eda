"""Kills a node while the SDKs of another language use it: ledger.py HIGHWATER_BIN AMQP_PORT KILLS COMMAND..

COMMAND is a program that is given the port and works until its standard input ends. It sends numbered events to the hub `ledger` and
numbered messages to the queue `ledger`, receives and completes the messages, and prints what the node has answered, a line each:

    event NAME       the event was accepted
    sent NAME        the message was accepted
    received NAME    the message came
    completed NAME   its completion was confirmed

What fails is tried again with the same name. A line on its standard input ends the sending. The node is killed (-9) and started again at
random moments. At the end every accepted event must be there, every accepted message must have come, the queue must be empty,
and no message may come again after its completion was confirmed.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from killed_node import KilledNode

BIN, PORT, KILLS, COMMAND = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
URL = f"http://127.0.0.1:{PORT + 1}"
PER_LIFE = 60

lock = threading.Lock()
names = {"event": set(), "sent": set(), "received": set(), "completed": set()}
again = []
client_ended = threading.Event()


def follow(client):
    for line in client.stdout:
        what, _, name = line.strip().partition(" ")
        with lock:
            if what == "received" and name in names["completed"]:
                again.append(name)
            if what in names:
                names[what].add(name)
            else:
                print(line, end="", file=sys.stderr)
    client_ended.set()


def wait_until(what, condition, limit=120):
    limit = time.time() + limit
    while time.time() < limit and not client_ended.is_set():
        with lock:
            if condition():
                return
        time.sleep(0.01)
    if client_ended.is_set():
        raise SystemExit("the client has ended")
    with lock:
        counts = {kind: len(of) for kind, of in names.items()}
    raise SystemExit(f"{what}: {counts}")


def wait_for_progress():
    with lock:
        targets = {kind: len(names[kind]) + PER_LIFE for kind in ("event", "sent", "completed")}
    wait_until("no progress", lambda: all(len(names[kind]) >= target for kind, target in targets.items()))


def wait_until_empty():
    """A completion whose confirmation was lost in a kill is not seen again, so the node is asked what is left."""
    for _ in range(600):
        with urllib.request.urlopen(f"{URL}/api/queues/ledger", timeout=10) as answer:
            counts = json.load(answer)
        if counts["active"] == counts["locked"] == 0:
            return
        time.sleep(0.1)
    raise SystemExit(f"messages stay in the queue: {counts}")


def main():
    folder = tempfile.mkdtemp()
    with open(f"{folder}/highwater.toml", "w") as file:
        file.write(f'data = "{folder}/data"\namqp = {{ listen = "127.0.0.1:{PORT}" }}\nhttp = {{ listen = "127.0.0.1:{PORT + 1}" }}\n')
        file.write('kafka = { listen = "off" }\n[hubs.ledger]\npartitions = 2\n')
        file.write('[queues.ledger]\nlock = "5s"\ndeliveries_max = 1000\nduplicates_within = "1h"\n')
    node = KilledNode(BIN, folder, PORT + 1)
    client = subprocess.Popen([*COMMAND, str(PORT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    threading.Thread(target=follow, args=(client,), daemon=True).start()
    try:
        for _ in range(KILLS):
            wait_for_progress()
            time.sleep(random.uniform(0, 0.2))
            node.restart()
        wait_for_progress()
        client.stdin.write("stop\n")
        client.stdin.flush()
        wait_until("messages are lost", lambda: names["sent"] <= names["received"])
        wait_until_empty()
        tail = subprocess.run([BIN, "hub", "tail", "ledger", "--from", "earliest", "--server", URL],
                              check=True, stdout=subprocess.PIPE, text=True)
        lost = names["event"] - set(tail.stdout.split())
        if lost:
            raise SystemExit(f"{len(lost)} accepted events are lost, such as {sorted(lost)[:5]}")
        if again:
            raise SystemExit(f"{len(again)} messages came again after their completion, such as {again[:5]}")
        print(f"ok    {len(names['event'])} accepted events and {len(names['sent'])} messages, each completed once, "
              f"survived {KILLS} kills")
    finally:
        client.kill()
        client.wait()
        node.kill()
        shutil.rmtree(folder)


main()
