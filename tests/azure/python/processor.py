"""The processor client of azure-eventhub with a checkpoint store, unchanged, against a node: processor.py AMQP_PORT HUB

Two workers share the partitions of the hub through one store; one ends, and the other takes its partitions. A third worker begins at
the checkpoints. The store is in memory: a store in Azure Blob Storage is no part of the node. Ends with 1 if a check failed.
"""

import sys
import threading
import time
import uuid

from azure.eventhub import CheckpointStore, EventData, EventHubConsumerClient, EventHubProducerClient

PORT, HUB = sys.argv[1:3]
STRING = f"Endpoint=sb://127.0.0.1:{PORT};SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;UseDevelopmentEmulator=true;"


class MemoryStore(CheckpointStore):
    """Owners are replaced only by whoever has seen the last entry."""

    def __init__(self):
        self.lock, self.owners, self.checkpoints = threading.Lock(), {}, {}

    def list_ownership(self, fully_qualified_namespace, eventhub_name, consumer_group, **_):
        with self.lock:
            return [dict(owner) for owner in self.owners.values()]

    def claim_ownership(self, ownership_list, **_):
        claimed = []
        with self.lock:
            for wanted in ownership_list:
                known = self.owners.get(wanted["partition_id"])
                if known is None or known["etag"] == wanted.get("etag"):
                    entry = {**wanted, "etag": uuid.uuid4().hex, "last_modified_time": time.time()}
                    self.owners[wanted["partition_id"]] = entry
                    claimed.append(dict(entry))
        return claimed

    def list_checkpoints(self, fully_qualified_namespace, eventhub_name, consumer_group, **_):
        with self.lock:
            return [dict(checkpoint) for checkpoint in self.checkpoints.values()]

    def update_checkpoint(self, checkpoint, **_):
        with self.lock:
            self.checkpoints[checkpoint["partition_id"]] = dict(checkpoint)


class Worker:
    def __init__(self, store):
        self.partitions, self.bodies, self.lock = set(), [], threading.Lock()
        self.client = EventHubConsumerClient.from_connection_string(
            STRING, consumer_group="$Default", eventhub_name=HUB, checkpoint_store=store, load_balancing_interval=1,
            partition_ownership_expiration_interval=5,
        )
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        self.client.receive(on_event=self.take, starting_position="-1")

    def take(self, context, event):
        with self.lock:
            self.partitions.add(context.partition_id)
            self.bodies.append(event.body_as_str())
        context.update_checkpoint(event)

    def close(self):
        self.client.close()
        self.thread.join()


def send(producer, text):
    for partition in producer.get_partition_ids():
        batch = producer.create_batch(partition_id=partition)
        batch.add(EventData(f"{text} {partition}"))
        producer.send_batch(batch)


def wait(what, holds):
    limit = time.time() + 60
    while not holds():
        assert time.time() < limit, what
        time.sleep(0.1)


def main():
    store = MemoryStore()
    with EventHubProducerClient.from_connection_string(STRING, eventhub_name=HUB) as producer:
        partitions = set(producer.get_partition_ids())
        first, second = Worker(store), Worker(store)
        rounds = 0

        def shared():
            nonlocal rounds
            send(producer, f"round {rounds}")
            rounds += 1
            owners = {owner["owner_id"] for owner in store.owners.values()}
            return len(owners) == 2 and first.partitions and second.partitions

        wait("the partitions are shared", shared)
        first.close()
        second.partitions.clear()

        def taken_over():
            send(producer, f"round {rounds}")
            return second.partitions == partitions

        wait("the partitions are taken over", taken_over)
        wait("the last events are checkpointed", lambda: len(store.checkpoints) == len(partitions))
        second.close()
        send(producer, "last")
        third = Worker(store)
        last = {f"last {partition}" for partition in partitions}
        wait("the last events arrive", lambda: last <= set(third.bodies))
        third.close()
        again = set(third.bodies) & {body for body in first.bodies if not body.startswith(f"round {rounds}")}
        assert not again, f"events before the checkpoints came again: {again}"
    print("ok    Python, processor with a checkpoint store")


main()
