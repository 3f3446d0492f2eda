"""Kills a node while azure-servicebus sends and receives: servicebus_crash.py HIGHWATER_BIN AMQP_PORT KILLS [--topic]

Senders send numbered messages and note those that the node has accepted. Receivers complete messages and note those whose
completion the node has confirmed. The node is killed (-9) and started again at random moments. At the end every accepted
message must have been received, the queue must be empty, no message may come again after its completion was confirmed, and a
scheduled message, a deferred message and the state of a session must be as they were. With --topic the messages go to a topic that was
created at run time, and each must come from both of its subscriptions.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from killed_node import KilledNode

BIN, PORT, KILLS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
STRING = f"Endpoint=sb://127.0.0.1:{PORT};SharedAccessKeyName=k;SharedAccessKey=s;UseDevelopmentEmulator=true;"
QUEUE, SENDERS, RECEIVERS, BATCH = "ledger", 2, 2, 10
# A message that was received is known by the subscription before its name.
PLACES = ["a:", "b:"] if "--topic" in sys.argv else [""]
PER_LIFE = 60

stop_sending, stop_receiving = threading.Event(), threading.Event()
lock = threading.Lock()
accepted, received, confirmed, again = set(), set(), set(), []


def post(path, body):
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT + 1}{path}", data, kind), timeout=10).read()


def create_topic():
    post("/api/topics", {"name": QUEUE, "duplicates_within": "1h"})
    for place in PLACES:
        subscription = {"name": place[:-1], "lock": "5s", "deliveries_max": 1000}
        post(f"/api/topics/{QUEUE}/subscriptions", subscription)


def sender_link(bus):
    return bus.get_queue_sender(QUEUE) if PLACES == [""] else bus.get_topic_sender(QUEUE)


def receiver_link(bus, place):
    return bus.get_subscription_receiver(QUEUE, place[:-1]) if place else bus.get_queue_receiver(QUEUE)


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
        with sender_link(bus) as link:
            while not stop.is_set():
                names = [f"{number}-{at + each}" for each in range(BATCH)]
                link.send_messages([ServiceBusMessage(name, message_id=name) for name in names])
                with lock:
                    accepted.update(place + name for place in PLACES for name in names)
                at += BATCH

    repeat(act, stop_sending)


def receiver(place):
    def act(bus, stop):
        with receiver_link(bus, place) as link:
            while not stop.is_set():
                for message in link.receive_messages(max_message_count=5, max_wait_time=1):
                    name = place + str(message)
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
    path = "queues" if PLACES == [""] else "topics"
    for _ in range(600):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT + 1}/api/{path}/{QUEUE}", timeout=10) as answer:
            counts = json.load(answer)
        if all(of["active"] == of["locked"] == 0 for of in counts.get("subscriptions", [counts])):
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
        if PLACES == [""]:
            file.write(f'[queues.{QUEUE}]\nlock = "5s"\ndeliveries_max = 1000\nduplicates_within = "1h"\n')
        file.write("[queues.kept]\n[queues.by-session]\nsessions = true\n")
    node = KilledNode(BIN, folder, PORT + 1)
    if PLACES != [""]:
        create_topic()
    kept = prepare()
    threads = [threading.Thread(target=sender, args=(number,), daemon=True) for number in range(SENDERS)]
    threads += [threading.Thread(target=receiver, args=(place,), daemon=True) for place in PLACES for _ in range(RECEIVERS)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            wait_for_progress()
            time.sleep(random.uniform(0, 0.2))
            node.restart()
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
        of = "" if PLACES == [""] else " of two subscriptions"
        print(f"ok    {len(accepted)} accepted messages{of}, each completed once, survived {KILLS} kills")
    finally:
        node.kill()
        shutil.rmtree(folder)


main()
# Threads of the SDK may still wait for a node that is gone.
os._exit(0)
