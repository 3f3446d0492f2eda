"""Microsoft's azure-servicebus, unchanged, against a node: servicebus.py AMQP_PORT HTTP_PORT [--keys] [CHECK..]

Prints a line for each check and ends with 1 if one failed.
"""

import json
import sys
import threading
import time
import traceback
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

AMQP, HTTP = int(sys.argv[1]), int(sys.argv[2])
KEYS = "--keys" in sys.argv
WAIT = 20
RUN = uuid.uuid4().hex[:8]
queues = 0


def connection_string(name="root", secret="s3cret-of-root"):
    return (
        f"Endpoint=sb://127.0.0.1:{AMQP};SharedAccessKeyName={name};SharedAccessKey={secret};"
        "UseDevelopmentEmulator=true;"
    )


def http(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{HTTP}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    if KEYS:
        request.add_header("Authorization", "Bearer root:s3cret-of-root")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


def new_queue(**settings):
    global queues
    queues += 1
    name = f"Azure-{RUN}-{queues}"
    http("POST", "/api/queues", {"name": name, **settings})
    return name


def client(**options):
    options.setdefault("retry_total", 0)
    return ServiceBusClient.from_connection_string(connection_string(), **options)


def send(queue, *bodies, **options):
    with client() as bus, bus.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, **options) for body in bodies])


def text(message):
    return str(message)


def receive(receiver, count, wait=WAIT):
    """As many messages, however the SDK cuts them."""
    got = []
    limit = time.time() + wait
    while len(got) < count and time.time() < limit:
        got += receiver.receive_messages(max_message_count=count - len(got), max_wait_time=max(1, int(limit - time.time())))
    return got


def nothing(receiver):
    return receiver.receive_messages(max_message_count=1, max_wait_time=1) == []


def fails(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{kind} was expected")


def check_send_and_complete():
    queue = new_queue()
    with client() as bus:
        with bus.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("one"))
            sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
            batch = sender.create_message_batch()
            for number in range(50):
                batch.add_message(ServiceBusMessage(f"batch {number}"))
            sender.send_messages(batch)
            sender.send_messages(ServiceBusMessage(b""))
        # Names of entities have no case.
        with bus.get_queue_receiver(queue.lower()) as receiver:
            got = receive(receiver, 54)
            expected = ["one", "two", "three"] + [f"batch {number}" for number in range(50)] + [""]
            assert [text(message) for message in got] == expected, got
            assert [message.sequence_number for message in got] == list(range(1, 55))
            for message in got:
                receiver.complete_message(message)
            assert nothing(receiver)
    assert http("GET", f"/api/queues/{queue}")["active"] == 0


def check_properties():
    queue = new_queue()
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
    values = {
        "text": "äöü €", "int": 7, "float": 1.25, "bool": True, "none": None,
        "uuid": uuid.UUID(int=5), "at": at,
    }
    message = ServiceBusMessage(
        '{"a":1}', application_properties=values, message_id="id-1", correlation_id="c-1", subject="label", to="there",
        reply_to="here", reply_to_session_id="r-1", content_type="application/json", partition_key="key",
        time_to_live=timedelta(minutes=5),
    )
    with client() as bus:
        with bus.get_queue_sender(queue) as sender:
            sender.send_messages(message)
            sender.send_messages(AmqpAnnotatedMessage(value_body={"a": [1, "x"]}))
            sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1, 2], ["three"]]))
            sender.send_messages(AmqpAnnotatedMessage(value_body="a string"))
        with bus.get_queue_receiver(queue) as receiver:
            got, value, sequence, string = receive(receiver, 4)
            assert (got.message_id, got.correlation_id, got.subject) == ("id-1", "c-1", "label")
            assert (got.to, got.reply_to, got.reply_to_session_id) == ("there", "here", "r-1")
            assert (got.content_type, got.partition_key) == ("application/json", "key")
            assert got.time_to_live == timedelta(minutes=5), got.time_to_live
            assert got.expires_at_utc - got.enqueued_time_utc == timedelta(minutes=5)
            assert got.delivery_count == 0 and got.lock_token and got.locked_until_utc > datetime.now(timezone.utc)
            back = {key.decode(): entry for key, entry in got.application_properties.items()}
            assert back.pop("text").decode() == values["text"]
            assert back.pop("at") == int(at.timestamp() * 1000)
            for name, entry in back.items():
                assert entry == values[name], (name, entry)
            assert value.body_type == AmqpMessageBodyType.VALUE and value.body == {b"a": [1, b"x"]}, value.body
            assert sequence.body_type == AmqpMessageBodyType.SEQUENCE and list(sequence.body) == [[1, 2], [b"three"]]
            assert string.body == b"a string"
            for each in (got, value, sequence, string):
                receiver.complete_message(each)


def check_abandon_and_dead_letter():
    queue = new_queue(deliveries_max=3)
    send(queue, "poison", "sick")
    with client() as bus:
        with bus.get_queue_receiver(queue) as receiver:
            first, second = receive(receiver, 2)
            receiver.dead_letter_message(second, reason="sick", error_description="it coughs")
            for count in range(3):
                assert (text(first), first.delivery_count) == ("poison", count)
                receiver.abandon_message(first)
                if count < 2:
                    (first,) = receive(receiver, 1)
            assert nothing(receiver)
        with bus.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            got = {text(message): message for message in receive(dead, 2)}
            assert got["sick"].dead_letter_reason == "sick"
            assert got["sick"].dead_letter_error_description == "it coughs"
            assert got["poison"].dead_letter_reason == "MaxDeliveryCountExceeded"
            assert got["sick"].dead_letter_source == queue
            assert text(dead.peek_messages(max_message_count=1)[0]) in ("poison", "sick")
            dead.complete_message(got["sick"])
            dead.abandon_message(got["poison"])
            (again,) = receive(dead, 1)
            assert text(again) == "poison"
            dead.complete_message(again)
            assert nothing(dead)


def check_defer():
    queue = new_queue()
    send(queue, "a", "b", "c")
    with client() as bus, bus.get_queue_receiver(queue) as receiver:
        got = receive(receiver, 3)
        for message in got:
            receiver.defer_message(message)
        numbers = [message.sequence_number for message in got]
        assert nothing(receiver)
        peeked = receiver.peek_messages(max_message_count=3, sequence_number=1)
        assert [message.state.name for message in peeked] == ["DEFERRED"] * 3, peeked
        deferred = receiver.receive_deferred_messages(numbers)
        assert [text(message) for message in deferred] == ["a", "b", "c"]
        receiver.complete_message(deferred[0])
        receiver.abandon_message(deferred[1])
        receiver.dead_letter_message(deferred[2], reason="late")
        fails(MessageNotFoundError, lambda: receiver.receive_deferred_messages(numbers[0]))
        (again,) = receiver.receive_deferred_messages(numbers[1])
        receiver.renew_message_lock(again)
        receiver.complete_message(again)
    assert http("GET", f"/api/queues/{queue}")["dead_letters"] == 1


def check_locks():
    queue = new_queue(lock="6s")
    send(queue, "a", "b")
    with client() as bus, bus.get_queue_receiver(queue) as receiver:
        lost, kept = receive(receiver, 2)
        with AutoLockRenewer() as renewer:
            renewer.register(receiver, kept, max_lock_renewal_duration=30)
            # The message that nobody renews comes back.
            (again,) = receive(receiver, 1)
            assert (text(again), again.delivery_count) == ("a", 1)
            fails(MessageLockLostError, lambda: receiver.complete_message(lost))
            receiver.complete_message(again)
            until = kept.locked_until_utc
            assert receiver.renew_message_lock(kept) >= until
            receiver.complete_message(kept)
        fails((ServiceBusError, ValueError), lambda: receiver.complete_message(kept))
        assert nothing(receiver)


def check_lock_lost_by_the_clock_of_the_node():
    """The SDK believes that it has the lock, and the node knows better."""
    queue = new_queue(lock="1s")
    send(queue, "a")
    with client() as bus, bus.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        with bus.get_queue_receiver(queue) as other:
            (again,) = receive(other, 1)
            other.complete_message(again)
        message._expiry = datetime.now(timezone.utc) + timedelta(minutes=1)
        error = fails(ServiceBusError, lambda: receiver.complete_message(message))
        assert isinstance(error, MessageLockLostError), error


def check_receive_and_delete():
    queue = new_queue()
    send(queue, "a", "b")
    with client() as bus:
        with bus.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
            assert [text(message) for message in receive(receiver, 2)] == ["a", "b"]
            assert nothing(receiver)
    facts = http("GET", f"/api/queues/{queue}")
    assert (facts["active"], facts["locked"]) == (0, 0), facts


def check_prefetch_and_close():
    queue = new_queue()
    send(queue, *[str(number) for number in range(20)])
    with client() as bus:
        with bus.get_queue_receiver(queue, prefetch_count=10) as receiver:
            (first,) = receive(receiver, 1)
            receiver.complete_message(first)
        # What was prefetched and not asked for is given back, and did not count.
        with bus.get_queue_receiver(queue) as receiver:
            got = receive(receiver, 19, wait=75)
            assert sorted(int(text(message)) for message in got) == list(range(1, 20)), got
            for message in got:
                receiver.complete_message(message)


def check_schedule():
    queue = new_queue()
    soon = datetime.now(timezone.utc) + timedelta(seconds=3)
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with client() as bus:
        with bus.get_queue_sender(queue) as sender:
            (number,) = sender.schedule_messages(ServiceBusMessage("soon"), soon)
            numbers = sender.schedule_messages([ServiceBusMessage("x"), ServiceBusMessage("y")], later)
            sender.send_messages(ServiceBusMessage("annotated", scheduled_enqueue_time_utc=later))
            sender.cancel_scheduled_messages(numbers[0])
            fails(MessageNotFoundError, lambda: sender.cancel_scheduled_messages(numbers[0]))
        with bus.get_queue_receiver(queue) as receiver:
            peeked = receiver.peek_messages(max_message_count=10)
            assert [text(message) for message in peeked] == ["soon", "y", "annotated"]
            assert all(message.state.name == "SCHEDULED" for message in peeked)
            assert abs(peeked[1].scheduled_enqueue_time_utc - later) < timedelta(seconds=1)
            (got,) = receive(receiver, 1)
            assert (text(got), got.sequence_number) == ("soon", number)
            assert datetime.now(timezone.utc) >= soon - timedelta(seconds=1)
            receiver.complete_message(got)
    assert http("GET", f"/api/queues/{queue}")["scheduled"] == 2


def check_peek():
    queue = new_queue()
    with client() as bus, bus.get_queue_receiver(queue) as receiver:
        assert receiver.peek_messages() == []
        send(queue, *[str(number) for number in range(10)])
        assert [text(message) for message in receiver.peek_messages(max_message_count=4)] == ["0", "1", "2", "3"]
        from_seven = receiver.peek_messages(max_message_count=10, sequence_number=8)
        assert [text(message) for message in from_seven] == ["7", "8", "9"]
    facts = http("GET", f"/api/queues/{queue}")
    assert (facts["active"], facts["locked"]) == (10, 0)


def check_time_to_live():
    queue = new_queue(dead_letter_expired=True)
    send(queue, "short", time_to_live=timedelta(seconds=1))
    with client() as bus:
        with bus.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (got,) = receive(dead, 1)
            assert got.dead_letter_reason == "TTLExpiredException", got.dead_letter_reason
            dead.complete_message(got)
        with bus.get_queue_receiver(queue) as receiver:
            assert nothing(receiver)


def check_duplicates():
    queue = new_queue(duplicates_within="1m")
    send(queue, "first", message_id="same")
    send(queue, "again", message_id="same")
    send(queue, "other", message_id="another")
    with client() as bus, bus.get_queue_receiver(queue) as receiver:
        got = receive(receiver, 2)
        assert [text(message) for message in got] == ["first", "other"]
        for message in got:
            receiver.complete_message(message)
        assert nothing(receiver)


def check_sessions():
    queue = new_queue(sessions=True)
    with client() as bus:
        with bus.get_queue_sender(queue) as sender:
            for session in ("a", "b"):
                sender.send_messages([ServiceBusMessage(f"{session}{at}", session_id=session) for at in range(3)])
            fails(ServiceBusError, lambda: sender.send_messages(ServiceBusMessage("no session")))
        with bus.get_queue_receiver(queue, session_id="a") as receiver:
            session = receiver.session
            assert session.session_id == "a" and session.locked_until_utc > datetime.now(timezone.utc)
            assert session.get_state() is None
            session.set_state(b"\x00state")
            assert session.get_state() == b"\x00state"
            before = session.locked_until_utc
            assert session.renew_lock() >= before
            taken = bus.get_queue_receiver(queue, session_id="a")
            fails(SessionCannotBeLockedError, taken.__enter__)
            taken.close()
            got = receive(receiver, 3)
            assert [text(message) for message in got] == ["a0", "a1", "a2"]
            assert [text(message) for message in receiver.peek_messages(max_message_count=9, sequence_number=1)] == ["a0", "a1", "a2"]
            receiver.complete_message(got[0])
            receiver.defer_message(got[1])
            # The third goes back with the session, and did not count.
        with bus.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
            first = receiver.session.session_id
            (message,) = receive(receiver, 1)
            assert (text(message), message.delivery_count, first) == ("a2", 0, "a"), (text(message), first)
            receiver.complete_message(message)
            (deferred,) = receiver.receive_deferred_messages(got[1].sequence_number)
            receiver.complete_message(deferred)
            assert receiver.session.get_state() == b"\x00state"
            receiver.session.set_state(None)
            assert receiver.session.get_state() is None
            with bus.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as other:
                assert other.session.session_id == "b"
        none = bus.get_queue_receiver(queue, session_id="b")
        with none:
            for message in receive(none, 3):
                none.complete_message(message)
        plain = bus.get_queue_receiver(queue)
        fails(ServiceBusError, plain.__enter__)
        plain.close()
        empty = bus.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2)
        fails(OperationTimeoutError, empty.__enter__)
        empty.close()


def check_session_lock_expires():
    queue = new_queue(sessions=True, lock="1s")
    send(queue, "x", session_id="s")
    with client() as bus, bus.get_queue_receiver(queue, session_id="s") as receiver:
        (message,) = receive(receiver, 1)
        with bus.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as other:
            (again,) = receive(other, 1)
            assert (text(again), again.delivery_count) == ("x", 1)
            fails((SessionLockLostError, MessageLockLostError), lambda: receiver.complete_message(message))
            other.complete_message(again)


def check_many_sessions_in_order():
    queue = new_queue(sessions=True)
    sessions, each = 10, 30
    with client() as bus, bus.get_queue_sender(queue) as sender:
        for at in range(each):
            sender.send_messages([ServiceBusMessage(str(at), session_id=str(session)) for session in range(sessions)])
    got, lock = {str(session): [] for session in range(sessions)}, threading.Lock()

    def work():
        with client() as bus:
            while True:
                try:
                    with bus.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2) as receiver:
                        while messages := receiver.receive_messages(max_message_count=7, max_wait_time=1):
                            for message in messages:
                                with lock:
                                    got[message.session_id].append(int(text(message)))
                                receiver.complete_message(message)
                except OperationTimeoutError:
                    return

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for session, numbers in got.items():
        assert numbers == list(range(each)), (session, numbers)


def check_sizes():
    queue = new_queue(message_bytes_max=600000)
    with client() as bus:
        with bus.get_queue_sender(queue) as sender:
            big = "x" * 500000
            sender.send_messages(ServiceBusMessage(big))
            fails(MessageSizeExceededError, lambda: sender.send_messages(ServiceBusMessage("x" * 700000)))
            sender.send_messages(ServiceBusMessage("small"))
        with bus.get_queue_receiver(queue) as receiver:
            got = receive(receiver, 2)
            assert [len(text(message)) for message in got] == [500000, 5]
            for message in got:
                receiver.complete_message(message)


def check_missing_queue():
    with client() as bus:
        began = time.time()
        receiver = bus.get_queue_receiver(f"no-such-{RUN}")
        fails(MessagingEntityNotFoundError, receiver.__enter__)
        receiver.close()
        sender = bus.get_queue_sender(f"no-such-{RUN}")
        fails(MessagingEntityNotFoundError, lambda: sender.send_messages(ServiceBusMessage("x")))
        sender.close()
        assert time.time() - began < 10
    assert f"no-such-{RUN}" not in json.dumps(http("GET", "/api/hubs")), "no hub was made of it"


def check_http_and_amqp():
    queue = new_queue()
    send(queue, "over AMQP", application_properties={"count": 7})
    (got,) = http("POST", f"/queues/{queue}/receive?max=1")["messages"]
    assert got["properties"]["count"] == "7", got
    http("POST", f"/queues/{queue}/complete", {"tokens": [got["token"]]})
    http("POST", f"/queues/{queue}/batch", [{"body": {"over": "HTTP"}, "id": "h-1", "properties": {"p": "v"}}])
    with client() as bus, bus.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        assert json.loads(text(message)) == {"over": "HTTP"} and message.message_id == "h-1"
        assert message.application_properties == {b"p": b"v"}
        receiver.dead_letter_message(message, reason="by the SDK")
    (dead,) = http("GET", f"/queues/{queue}/$deadletter/messages")["messages"]
    assert dead["dead_letter"]["reason"] == "by the SDK"


def check_rights():
    queue = new_queue()
    refused = (ServiceBusAuthorizationError, ServiceBusAuthenticationError)

    def bus_of(name, secret):
        return ServiceBusClient.from_connection_string(connection_string(name, secret), retry_total=0)

    with bus_of("sender", "s3cret-of-sender") as bus:
        with bus.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("allowed"))
            later = datetime.now(timezone.utc) + timedelta(hours=1)
            sender.schedule_messages(ServiceBusMessage("later"), later)
        receiver = bus.get_queue_receiver(queue)
        fails(refused, receiver.__enter__)
        receiver.close()
    with bus_of("reader", "s3cret-of-reader") as bus:
        sender = bus.get_queue_sender(queue)
        fails(refused, lambda: sender.send_messages(ServiceBusMessage("x")))
        sender.close()
        with bus.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver, 1)
            receiver.complete_message(message)
    with bus_of("root", "guess") as bus:
        sender = bus.get_queue_sender(queue)
        fails(refused, lambda: sender.send_messages(ServiceBusMessage("x")))
        sender.close()


def check_topics():
    topic = "azure-prices"

    def apple(body, colour, grams, **options):
        properties = {"colour": colour, "grams": grams}
        return ServiceBusMessage(body, application_properties=properties, subject="fruit", **options)

    def take(name, count, **options):
        with client() as bus, bus.get_subscription_receiver(topic, name, **options) as receiver:
            got = receive(receiver, count)
            for message in got:
                receiver.complete_message(message)
            assert nothing(receiver)
            return got

    with client() as bus, bus.get_topic_sender("Azure-Prices") as sender:
        sender.send_messages([apple("heavy", "red", 150, session_id="a"), apple("light", "red", 50, session_id="a")])
        batch = sender.create_message_batch()
        batch.add_message(apple("green", "green", 150, session_id="b"))
        sender.send_messages(batch)
        later = datetime.now(timezone.utc) + timedelta(seconds=1)
        sender.schedule_messages(apple("scheduled", "green", 1, session_id="b"), later)
        (number,) = sender.schedule_messages(apple("cancelled", "green", 1), later + timedelta(hours=1))
        sender.cancel_scheduled_messages(number)
        fails(MessageNotFoundError, lambda: sender.cancel_scheduled_messages(number))
        fails(MessageSizeExceededError, lambda: sender.send_messages(ServiceBusMessage("x" * (2 << 20))))
    got = take("all", 4)
    assert [text(message) for message in got] == ["heavy", "light", "green", "scheduled"], got
    assert got[0].application_properties == {b"colour": b"red", b"grams": 150}, got[0].application_properties
    (heavy,) = take("red", 1)
    assert text(heavy) == "heavy" and heavy.subject == "sold", heavy
    assert heavy.application_properties == {b"grams": 151, b"RuleName": b"red"}, heavy.application_properties
    assert [text(message) for message in take("labelled", 2)] == ["heavy", "light"]
    ordered = take("ordered", 2, session_id="b")
    assert [text(message) for message in ordered] == ["green", "scheduled"]
    assert [text(message) for message in take("ordered", 2, session_id="a")] == ["heavy", "light"]

    # Dead letters of a subscription are its own.
    with client() as bus, bus.get_topic_sender(topic) as sender:
        sender.send_messages([apple("bad", "green", 1, session_id="c"), apple("abandoned", "green", 1, session_id="c")])
    with client() as bus, bus.get_subscription_receiver(topic, "all") as receiver:
        bad, abandoned = receive(receiver, 2)
        receiver.dead_letter_message(bad, reason="bad", error_description="it is")
        receiver.abandon_message(abandoned)
        (abandoned,) = receive(receiver, 1)
        assert abandoned.delivery_count == 1
        receiver.abandon_message(abandoned)
        assert nothing(receiver)
    dead = take("all", 2, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert [message.dead_letter_reason for message in dead] == ["bad", "MaxDeliveryCountExceeded"], dead
    assert len(take("ordered", 2, session_id="c")) == 2

    with client() as bus:
        receiver = bus.get_subscription_receiver(topic, "none")
        fails(MessagingEntityNotFoundError, receiver.__enter__)
        receiver.close()


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
