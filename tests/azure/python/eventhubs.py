"""Microsoft's azure-eventhub, unchanged, against a node: eventhubs.py AMQP_PORT HTTP_PORT [--keys] [CHECK..]

Prints a line for each check and ends with 1 if one failed.
"""

import asyncio
import json
import sys
import threading
import time
import traceback
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.aio import EventHubConsumerClient as AsyncConsumer
from azure.eventhub.aio import EventHubProducerClient as AsyncProducer
from azure.eventhub.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.eventhub.exceptions import EventHubError

AMQP, HTTP = int(sys.argv[1]), int(sys.argv[2])
KEYS = "--keys" in sys.argv
WAIT = 20


def connection_string(name="root", secret="s3cret-of-root"):
    return (
        f"Endpoint=sb://127.0.0.1:{AMQP};SharedAccessKeyName={name};SharedAccessKey={secret};"
        "UseDevelopmentEmulator=true;"
    )


def http(method, path, body=None, headers=None):
    request = urllib.request.Request(f"http://127.0.0.1:{HTTP}{path}", data=body, method=method)
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    if KEYS:
        request.add_header("Authorization", "Bearer root:s3cret-of-root")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


hubs = 0
RUN = uuid.uuid4().hex[:8]


def new_hub(partitions=2):
    global hubs
    hubs += 1
    name = f"azure-{RUN}-{hubs}"
    http("POST", "/api/hubs", json.dumps({"name": name, "partitions": partitions}).encode(), {"Content-Type": "application/json"})
    return name


def producer(hub, **options):
    return EventHubProducerClient.from_connection_string(connection_string(), eventhub_name=hub, **options)


def consumer(hub, group="$Default", **options):
    return EventHubConsumerClient.from_connection_string(
        connection_string(), consumer_group=group, eventhub_name=hub, **options
    )


def receive(hub, count, partition=None, position="-1", seconds=WAIT, group="$Default", **options):
    """The first `count` events from a position, or those of `seconds`."""
    got, done = [], threading.Event()
    client = consumer(hub, group)

    def on_events(context, events):
        got.extend((context.partition_id, event) for event in events)
        if len(got) >= count:
            done.set()

    # Event by event, the client waits for every other partition in between.
    def run():
        client.receive_batch(on_events, max_batch_size=1000, partition_id=partition, starting_position=position, **options)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    done.wait(seconds)
    client.close()
    thread.join(10)
    return got


def bodies(got):
    return [event.body_as_str() for _, event in got]


def check_batches():
    hub = new_hub()
    with producer(hub) as client:
        batch = client.create_batch()
        assert batch.max_size_in_bytes == 1 << 20, batch.max_size_in_bytes
        for number in range(100):
            batch.add(EventData(f"event {number}"))
        client.send_batch(batch)
        client.send_event(EventData("single"))
        client.send_batch([EventData("list 1"), EventData("list 2")])
    got = sorted(bodies(receive(hub, 103)))
    expected = sorted([f"event {number}" for number in range(100)] + ["single", "list 1", "list 2"])
    assert got == expected, got


def check_partitions():
    hub = new_hub(4)
    with producer(hub) as client:
        assert client.get_partition_ids() == ["0", "1", "2", "3"]
        for partition in range(4):
            batch = client.create_batch(partition_id=str(partition))
            batch.add(EventData(f"for {partition}"))
            client.send_batch(batch)
        for _ in range(3):
            batch = client.create_batch(partition_key="one key")
            batch.add(EventData("keyed"))
            client.send_batch(batch)
        try:
            client.send_event(EventData("x"), partition_id="9")
            raise AssertionError("a partition that does not exist took an event")
        except EventHubError as error:
            assert "Invalid partition 9" in str(error), error
    got = receive(hub, 7)
    by_partition = {}
    for partition, event in got:
        by_partition.setdefault(event.body_as_str(), set()).add(partition)
    for partition in range(4):
        assert by_partition[f"for {partition}"] == {str(partition)}, by_partition
    assert len(by_partition["keyed"]) == 1, by_partition
    assert {event.partition_key for _, event in got if event.body_as_str() == "keyed"} == {b"one key"}, got


def check_properties():
    hub = new_hub(1)
    token = uuid.uuid4()
    event = EventData("{}")
    event.content_type = "application/json"
    event.correlation_id = "correlation"
    event.message_id = "message"
    event.properties = {"text": "ümlaut", "count": 7, "ratio": 0.5, "flag": True, "id": token, "raw": b"\xff\x00"}
    annotated = AmqpAnnotatedMessage(
        value_body={"nested": [1, "two"]},
        properties=AmqpMessageProperties(subject="subject", group_id="group"),
        application_properties={"k": "v"},
    )
    text = AmqpAnnotatedMessage(sequence_body=[[1, 2], ["three"]])
    with producer(hub) as client:
        client.send_batch([event, annotated, text])
    first, second, third = [event for _, event in receive(hub, 3)]
    decoded = {name.decode(): value for name, value in first.properties.items()}
    expected = {"text": "ümlaut".encode(), "count": 7, "ratio": 0.5, "flag": True, "id": token, "raw": b"\xff\x00"}
    assert decoded == expected, decoded
    assert (first.content_type, first.correlation_id, first.message_id) == ("application/json", "correlation", "message")
    raw = second.raw_amqp_message
    assert raw.body_type.name == "VALUE" and raw.body == {b"nested": [1, b"two"]}, raw.body
    assert (raw.properties.subject, raw.properties.group_id) == (b"subject", b"group")
    assert [list(part) for part in third.raw_amqp_message.body] == [[1, 2], [b"three"]], third.raw_amqp_message.body


def check_positions():
    hub = new_hub(1)
    with producer(hub) as client:
        for number in range(3):
            client.send_event(EventData(f"old {number}"))
        time.sleep(0.05)
        middle = datetime.now(timezone.utc)
        time.sleep(0.05)
        for number in range(3):
            client.send_event(EventData(f"new {number}"))
        properties = client.get_partition_properties("0")
    events = [event for _, event in receive(hub, 6)]
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(numbers) and len(set(numbers)) == 6, numbers
    assert properties["last_enqueued_sequence_number"] == numbers[-1], properties
    all_new = ["new 0", "new 1", "new 2"]
    third = events[2]
    assert bodies(receive(hub, 3, "0", third.sequence_number)) == all_new
    assert bodies(receive(hub, 4, "0", third.sequence_number, starting_position_inclusive=True))[0] == "old 2"
    assert bodies(receive(hub, 3, "0", third.offset)) == all_new
    assert bodies(receive(hub, 4, "0", third.offset, starting_position_inclusive=True))[0] == "old 2"
    assert bodies(receive(hub, 3, "0", middle)) == all_new
    assert bodies(receive(hub, 1, "0", "@latest", seconds=1.5)) == []
    times = [event.enqueued_time for event in events]
    assert times == sorted(times) and times[2] < middle < times[3], times


def check_latest_gets_new_events():
    hub = new_hub(1)
    with producer(hub) as client:
        client.send_event(EventData("before"))
        got, ready = [], threading.Event()
        reader = consumer(hub)

        def on_event(_context, event):
            if event is None:
                ready.set()
            else:
                got.append(event.body_as_str())

        thread = threading.Thread(
            target=lambda: reader.receive(on_event, partition_id="0", starting_position="@latest", max_wait_time=1), daemon=True
        )
        thread.start()
        assert ready.wait(WAIT), "the reader never got ready"
        client.send_event(EventData("after"))
        limit = time.time() + WAIT
        while not got and time.time() < limit:
            time.sleep(0.05)
        reader.close()
        thread.join(10)
    assert got == ["after"], got


def check_owner_level():
    hub = new_hub(1)
    with producer(hub) as client:
        client.send_event(EventData("one"))
    errors, events = [], []
    low = consumer(hub, retry_total=0)
    low_thread = threading.Thread(
        target=lambda: low.receive(
            lambda _c, event: events.append(event),
            on_error=lambda _c, error: errors.append(error),
            partition_id="0", starting_position="-1", owner_level=1,
        ),
        daemon=True,
    )
    low_thread.start()
    limit = time.time() + WAIT
    while not events and time.time() < limit:
        time.sleep(0.05)
    assert events, "the first reader got nothing"
    assert bodies(receive(hub, 1, "0", owner_level=2)) == ["one"]
    while not errors and time.time() < limit:
        time.sleep(0.05)
    low.close()
    low_thread.join(10)
    assert errors and "ConsumerStolen" in type(errors[0]).__name__ or "epoch" in str(errors[0]), errors


def check_management():
    hub = new_hub(3)
    with consumer(hub) as client:
        properties = client.get_eventhub_properties()
        assert properties["eventhub_name"] == hub and properties["partition_ids"] == ["0", "1", "2"], properties
        age = datetime.now(timezone.utc) - properties["created_at"]
        assert timedelta(0) <= age < timedelta(minutes=10), properties
        empty = client.get_partition_properties("1")
        assert empty["is_empty"] and empty["last_enqueued_sequence_number"] == -1, empty
    with producer(hub) as client:
        client.send_event(EventData("x"), partition_id="1")
        filled = client.get_partition_properties("1")
        assert not filled["is_empty"] and filled["last_enqueued_offset"] == "0", filled
    missing = consumer("azure-missing", retry_total=0)
    try:
        missing.get_eventhub_properties()
        raise AssertionError("a hub that does not exist has properties")
    except EventHubError as error:
        assert "could not be found" in str(error) and "404" in str(error), error
    finally:
        missing.close()


def check_last_enqueued():
    hub = new_hub(1)
    with producer(hub) as client:
        client.send_batch([EventData("1"), EventData("2")])
    seen = []
    client = consumer(hub)
    done = threading.Event()

    def on_event(context, _event):
        seen.append(dict(context.last_enqueued_event_properties))
        done.set()

    thread = threading.Thread(
        target=lambda: client.receive(
            on_event, partition_id="0", starting_position="-1", track_last_enqueued_event_properties=True
        ),
        daemon=True,
    )
    thread.start()
    done.wait(WAIT)
    client.close()
    thread.join(10)
    assert seen and seen[0]["sequence_number"] == 1 and seen[0]["offset"] == "1", seen


def check_large():
    hub = new_hub(1)
    body = "x" * 900_000
    with producer(hub) as client:
        client.send_event(EventData(body))
        batch = client.create_batch()
        try:
            batch.add(EventData("y" * (2 << 20)))
            raise AssertionError("a batch took an event of 2 MiB")
        except ValueError:
            pass
    assert bodies(receive(hub, 1)) == [body]


def check_groups():
    hub = new_hub(1)
    with producer(hub) as client:
        client.send_event(EventData("for all"))
    for group in ("$Default", "alpha", "beta"):
        assert bodies(receive(hub, 1, group=group)) == ["for all"]


def check_other_protocols():
    hub = new_hub(1)
    event = EventData('{"by":"amqp"}')
    event.content_type = "application/json"
    event.properties = {"text": "plain", "count": 7}
    with producer(hub) as client:
        client.send_event(event, partition_key="k")
    http("POST", f"/hubs/{hub}/messages", b'{"by":"http"}', {"Content-Type": "application/json", "X-Partition-Key": "h"})
    stored = http("GET", f"/hubs/{hub}/partitions/0/messages")["messages"]
    assert stored[0]["value"] == {"by": "amqp"} and stored[0]["key"] == "k", stored
    assert stored[0]["headers"]["text"] == "plain" and stored[0]["headers"]["count"] == "7", stored
    assert stored[0]["headers"]["content-type"] == "application/json", stored
    first, second = [event for _, event in receive(hub, 2)]
    assert first.body_as_json() == {"by": "amqp"} and second.body_as_json() == {"by": "http"}
    assert second.content_type == "application/json" and second.partition_key == b"h", second


def check_many():
    """Many events through one link and back, in order."""
    hub, count = new_hub(1), 10_000
    with producer(hub) as client:
        number = 0
        while number < count:
            batch = client.create_batch(partition_id="0")
            try:
                while number < count:
                    batch.add(EventData(str(number)))
                    number += 1
            except ValueError:
                pass
            client.send_batch(batch)
    got = bodies(receive(hub, count, "0", seconds=90))
    assert got == [str(number) for number in range(count)], len(got)


def check_async():
    hub = new_hub(2)

    async def run():
        client = AsyncProducer.from_connection_string(connection_string(), eventhub_name=hub)
        async with client:
            await asyncio.gather(*[client.send_batch([EventData(f"{number}")]) for number in range(10)])
        reader = AsyncConsumer.from_connection_string(connection_string(), consumer_group="$Default", eventhub_name=hub)
        got = []

        async def on_event(_context, event):
            got.append(event.body_as_str())

        async with reader:
            task = asyncio.ensure_future(reader.receive(on_event, starting_position="-1"))
            for _ in range(WAIT * 20):
                if len(got) == 10:
                    break
                await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert sorted(got, key=int) == [str(number) for number in range(10)], got

    asyncio.run(run())


def check_rights():
    """Only on a node with keys."""
    hub = new_hub(1)

    def fails(text, action):
        try:
            action()
        except EventHubError as error:
            assert text in str(error), error
            return
        raise AssertionError(f"nothing failed with {text}")

    def client(kind, name, secret):
        options = {"consumer_group": "$Default"} if kind is EventHubConsumerClient else {}
        return kind.from_connection_string(connection_string(name, secret), eventhub_name=hub, retry_total=0, **options)

    with client(EventHubProducerClient, "sender", "s3cret-of-sender") as sender:
        sender.send_event(EventData("allowed"))
    reader = client(EventHubProducerClient, "reader", "s3cret-of-reader")
    fails("no right to send", lambda: reader.send_event(EventData("x")))
    reader.close()
    wrong = client(EventHubProducerClient, "root", "guess")
    fails("", lambda: wrong.send_event(EventData("x")))
    wrong.close()
    assert bodies(receive(hub, 1)) == ["allowed"]


def main():
    checks = [name for name in globals() if name.startswith("check_")]
    if not KEYS:
        checks.remove("check_rights")
    only = [word for word in sys.argv[3:] if not word.startswith("--")]
    failed = 0
    for name in checks:
        if only and name[6:] not in only:
            continue
        began = time.time()
        try:
            globals()[name]()
            print(f"ok    {name[6:]} ({time.time() - began:.1f} s)", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name[6:]}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


main()
