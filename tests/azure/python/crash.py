"""Kills a node while azure-eventhub sends: crash.py HIGHWATER_BIN AMQP_PORT KILLS

Two senders send numbered events and note those that the node has accepted. The node is killed (-9) and started again at
random moments. At the end every accepted event must be there. Events may be there twice: a sender repeats what it had no
answer for.
"""

import os
import random
import shutil
import sys
import tempfile
import threading
import time

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from killed_node import KilledNode

BIN, PORT, KILLS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
STRING = f"Endpoint=sb://127.0.0.1:{PORT};SharedAccessKeyName=k;SharedAccessKey=s;UseDevelopmentEmulator=true;"
HUB, PARTITIONS, SENDERS, BATCH = "ledger", 2, 2, 20
ACCEPTED_PER_LIFE = 100

stop = threading.Event()
accepted, lock = set(), threading.Lock()


def send(sender):
    """Sends until told to stop; what is refused or unanswered is sent again."""
    client = EventHubProducerClient.from_connection_string(STRING, eventhub_name=HUB, retry_total=0)
    number = 0
    while not stop.is_set():
        names = [f"{sender}-{number + at}" for at in range(BATCH)]
        try:
            client.send_batch([EventData(name) for name in names], partition_id=str(number // BATCH % PARTITIONS))
        except EventHubError:
            client.close()
            client = EventHubProducerClient.from_connection_string(STRING, eventhub_name=HUB, retry_total=0)
            time.sleep(0.05)
            continue
        with lock:
            accepted.update(names)
        number += BATCH
    client.close()


def wait_for_progress():
    with lock:
        target = len(accepted) + ACCEPTED_PER_LIFE
    limit = time.time() + 90
    while time.time() < limit:
        with lock:
            if len(accepted) >= target:
                return
        time.sleep(0.01)
    raise SystemExit("nothing is accepted any more")


def read_all():
    """The events of all partitions, up to the ends as the node tells them."""
    client = EventHubConsumerClient.from_connection_string(STRING, consumer_group="$Default", eventhub_name=HUB)
    ends = {id: client.get_partition_properties(id)["last_enqueued_sequence_number"] for id in client.get_partition_ids()}
    found, at_end = set(), threading.Event()
    open_ends = {id for id, end in ends.items() if end >= 0}

    def on_events(context, events):
        found.update(event.body_as_str() for event in events)
        if events and events[-1].sequence_number >= ends[context.partition_id]:
            open_ends.discard(context.partition_id)
        if not open_ends:
            at_end.set()

    threads = [
        threading.Thread(
            target=client.receive_batch, args=(on_events,),
            kwargs={"partition_id": id, "starting_position": "-1", "max_batch_size": 1000}, daemon=True,
        )
        for id in ends
    ]
    for thread in threads:
        thread.start()
    at_end.wait(60)
    client.close()
    if open_ends:
        raise SystemExit(f"partitions {open_ends} were not read to their ends {ends}")
    return found


def main():
    folder = tempfile.mkdtemp()
    with open(f"{folder}/highwater.toml", "w") as file:
        file.write(f'data = "{folder}/data"\namqp = {{ listen = "127.0.0.1:{PORT}" }}\n')
        file.write(f'http = {{ listen = "127.0.0.1:{PORT + 1}" }}\nkafka = {{ listen = "off" }}\n')
        file.write(f"[hubs.{HUB}]\npartitions = {PARTITIONS}\n")
    node = KilledNode(BIN, folder, PORT + 1)
    senders = [threading.Thread(target=send, args=(sender,), daemon=True) for sender in range(SENDERS)]
    try:
        for sender in senders:
            sender.start()
        for _ in range(KILLS):
            wait_for_progress()
            time.sleep(random.uniform(0, 0.2))
            node.restart()
        wait_for_progress()
        stop.set()
        for sender in senders:
            sender.join(60)
        found = read_all()
        lost = accepted - found
        if lost:
            raise SystemExit(f"{len(lost)} of {len(accepted)} accepted events are lost, such as {sorted(lost)[:5]}")
        print(f"ok    {len(accepted)} accepted events survived {KILLS} kills ({len(found)} found)")
    finally:
        node.kill()
        shutil.rmtree(folder)


main()
# Threads of the SDK may still wait for a node that is gone.
os._exit(0)
