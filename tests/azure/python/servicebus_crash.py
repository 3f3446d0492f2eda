"""Kills a node while azure-servicebus sends and receives: servicebus_crash.py HIGHWATER_BIN AMQP_PORT KILLS

Senders send numbered messages and note those that the node has accepted. Receivers complete messages and note those whose
completion the node has confirmed. The node is killed (-9) and started again at random moments. At the end every accepted
message must have been received, the queue must be empty, no message may come again after its completion was confirmed, and a
scheduled message, a deferred message and the state of a session must be as they were.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusClient, ServiceBusMessage

BIN, PORT, KILLS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
STRING = f"Endpoint=sb://127.0.0.1:{PORT};SharedAccessKeyName=k;SharedAccessKey=s;UseDevelopmentEmulator=true;"
QUEUE, SENDERS, RECEIVERS, BATCH = "ledger", 2, 2, 10
PER_LIFE = 60

stop_sending, stop_receiving = threading.Event(), threading.Event()
lock = threading.Lock()
accepted, received, confirmed, again = set(), set(), set(), []


def start(folder):
    log = open(f"{folder}/log", "ab")
    node = subprocess.Popen([BIN, "up", "-c", f"{folder}/highwater.toml"], stdout=log, stderr=log)
    limit = time.time() + 60
    while time.time() < limit:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT + 1}/readyz", timeout=2).read()
            return node
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the node does not start")


def repeat(act, stop):
    """Runs `act` with clients of their own until told to stop; what fails is tried again."""
    while not stop.is_set():
        try:
            with ServiceBusClient.from_connection_string(STRING, retry_total=0) as bus:
                act(bus, stop)
        except Exception:  # The node is gone, in one of many ways.
            time.sleep(0.05)


def sender(number):
    at = 0

    def act(bus, stop):
        nonlocal at
        with bus.get_queue_sender(QUEUE) as link:
            while not stop.is_set():
                names = [f"{number}-{at + each}" for each in range(BATCH)]
                link.send_messages([ServiceBusMessage(name, message_id=name) for name in names])
                with lock:
                    accepted.update(names)
                at += BATCH

    repeat(act, stop_sending)


def receiver():
    def act(bus, stop):
        with bus.get_queue_receiver(QUEUE) as link:
            while not stop.is_set():
                for message in link.receive_messages(max_message_count=5, max_wait_time=1):
                    name = str(message)
                    with lock:
                        received.add(name)
                        if name in confirmed:
                            again.append(name)
                    link.complete_message(message)
                    with lock:
                        confirmed.add(name)

    repeat(act, stop_receiving)


def wait_until(what, condition, limit):
    limit = time.time() + limit
    while time.time() < limit:
        with lock:
            if condition():
                return
        time.sleep(0.01)
    with lock:
        state = f"{len(accepted)} accepted, {len(received)} received, {len(confirmed)} confirmed"
    raise SystemExit(f"{what}: {state}")


def wait_for_progress():
    with lock:
        target = len(accepted) + PER_LIFE, len(confirmed) + PER_LIFE
    wait_until("no progress", lambda: (len(accepted), len(confirmed)) >= target and len(confirmed) >= target[1], 120)


def wait_until_empty():
    """A completion whose confirmation was lost in a kill is not seen again, so the node is asked what is left."""
    for _ in range(600):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT + 1}/api/queues/{QUEUE}", timeout=10) as answer:
            counts = json.load(answer)
        if counts["active"] == counts["locked"] == 0:
            return
        time.sleep(0.1)
    raise SystemExit(f"messages stay in the queue: {counts}")


def prepare():
    """Leaves a scheduled message, a deferred message and the state of a session behind."""
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with ServiceBusClient.from_connection_string(STRING) as bus:
        with bus.get_queue_sender("kept") as link:
            (scheduled,) = link.schedule_messages(ServiceBusMessage("scheduled"), later)
            link.send_messages(ServiceBusMessage("deferred"))
        with bus.get_queue_receiver("kept") as link:
            (message,) = link.receive_messages(max_message_count=1, max_wait_time=20)
            link.defer_message(message)
        with bus.get_queue_receiver("by-session", session_id="s") as link:
            link.session.set_state(b"state")
    return scheduled, message.sequence_number


def check_kept(scheduled, deferred):
    with ServiceBusClient.from_connection_string(STRING) as bus:
        with bus.get_queue_receiver("kept") as link:
            (message,) = link.receive_deferred_messages(deferred)
            link.complete_message(message)
            (peeked,) = link.peek_messages(max_message_count=5, sequence_number=1)
            assert (str(peeked), peeked.sequence_number) == ("scheduled", scheduled), peeked
        with bus.get_queue_sender("kept") as link:
            link.cancel_scheduled_messages(scheduled)
        with bus.get_queue_receiver("by-session", session_id="s") as link:
            assert link.session.get_state() == b"state"


def main():
    folder = tempfile.mkdtemp()
    with open(f"{folder}/highwater.toml", "w") as file:
        file.write(f'data = "{folder}/data"\namqp = {{ listen = "127.0.0.1:{PORT}" }}\n')
        file.write(f'http = {{ listen = "127.0.0.1:{PORT + 1}" }}\nkafka = {{ listen = "off" }}\n')
        file.write(f'[queues.{QUEUE}]\nlock = "5s"\ndeliveries_max = 1000\nduplicates_within = "1h"\n')
        file.write("[queues.kept]\n[queues.by-session]\nsessions = true\n")
    node = start(folder)
    kept = prepare()
    threads = [threading.Thread(target=sender, args=(number,), daemon=True) for number in range(SENDERS)]
    threads += [threading.Thread(target=receiver, daemon=True) for _ in range(RECEIVERS)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            wait_for_progress()
            time.sleep(random.uniform(0, 0.2))
            node.send_signal(signal.SIGKILL)
            node.wait()
            node = start(folder)
        wait_for_progress()
        stop_sending.set()
        for thread in threads[:SENDERS]:
            thread.join(60)
        wait_until("messages are lost", lambda: accepted <= received, 120)
        wait_until_empty()
        stop_receiving.set()
        if again:
            raise SystemExit(f"{len(again)} messages came again after their completion, such as {again[:5]}")
        check_kept(*kept)
        print(f"ok    {len(accepted)} accepted messages, each completed once, survived {KILLS} kills")
    finally:
        node.kill()
        node.wait()
        shutil.rmtree(folder)


main()
# Threads of the SDK may still wait for a node that is gone.
os._exit(0)
