"""azure.servicebus.management, unchanged, against a node: administration.py HTTPS_PORT AMQP_PORT CA_FILE

Creates, describes, changes, lists and deletes queues, topics, subscriptions and rules, and reads counts. Ends with 1 if a check failed.
"""

import sys
import time
import traceback
import uuid
from datetime import datetime, timedelta, timezone

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

HTTPS, AMQP, CA = sys.argv[1:4]
RUN = uuid.uuid4().hex[:8]


def connection_string(port, name="root", secret="s3cret-of-root", more=""):
    return f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName={name};SharedAccessKey={secret};{more}"


def client(**of):
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string(HTTPS, **of), connection_verify=CA, retry_total=0
    )


def fails(kind, act):
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


def check_namespace():
    with client() as admin:
        space = admin.get_namespace_properties()
        assert space.messaging_sku == "Standard" and space.name, space
        assert space.created_at_utc.year > 2000, space.created_at_utc


def check_queues():
    name = f"Admin-{RUN}"
    with client() as admin:
        fails(ResourceNotFoundError, lambda: admin.get_queue(name))
        made = admin.create_queue(
            name,
            lock_duration=timedelta(seconds=30),
            max_delivery_count=7,
            default_message_time_to_live=timedelta(days=1),
            dead_lettering_on_message_expiration=True,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(minutes=1),
            max_size_in_megabytes=2048,
        )
        assert made.lock_duration == timedelta(seconds=30) and made.max_delivery_count == 7, made
        fails(ResourceExistsError, lambda: admin.create_queue(name))
        queue = admin.get_queue(name)
        assert queue.name == name and queue.default_message_time_to_live == timedelta(days=1), queue
        assert queue.requires_duplicate_detection and queue.max_size_in_megabytes == 2048, queue
        assert not queue.requires_session and queue.status == "Active", queue
        queue.lock_duration = timedelta(minutes=2)
        queue.default_message_time_to_live = timedelta(days=3)
        admin.update_queue(queue)
        again = admin.get_queue(name)
        assert again.lock_duration == timedelta(minutes=2), again
        assert again.default_message_time_to_live == timedelta(days=3) and again.max_delivery_count == 7, again
        queue.requires_session = True
        fails(HttpResponseError, lambda: admin.update_queue(queue))
        fails(HttpResponseError, lambda: admin.create_queue(f"{name}-x", enable_partitioning=True))
        fails(HttpResponseError, lambda: admin.create_queue("no spaces"))
        admin.delete_queue(name)
        fails(ResourceNotFoundError, lambda: admin.delete_queue(name))
        fails(ResourceNotFoundError, lambda: admin.get_queue_runtime_properties(name))


def check_lists():
    prefix = f"list-{RUN}"
    with client() as admin:
        for at in range(120):
            admin.create_queue(f"{prefix}-{at:03}")
        names = [queue.name for queue in admin.list_queues() if queue.name.startswith(prefix)]
        assert len(names) == 120 and names == sorted(names), names
        assert len([queue for queue in admin.list_queues_runtime_properties() if queue.name.startswith(prefix)]) == 120
        for name in names:
            admin.delete_queue(name)


def check_topics():
    topic = f"topic-{RUN}"
    with client() as admin:
        admin.create_topic(topic, default_message_time_to_live=timedelta(hours=1))
        fails(ResourceExistsError, lambda: admin.create_topic(topic))
        fails(ResourceExistsError, lambda: admin.create_queue(topic.upper()))
        properties = admin.get_topic(topic)
        properties.default_message_time_to_live = timedelta(hours=2)
        admin.update_topic(properties)
        assert admin.get_topic(topic).default_message_time_to_live == timedelta(hours=2)
        assert topic in [known.name for known in admin.list_topics()]

        admin.create_subscription(topic, "all", max_delivery_count=3)
        admin.create_subscription(topic, "red", requires_session=True)
        fails(ResourceExistsError, lambda: admin.create_subscription(topic, "all"))
        fails(ResourceNotFoundError, lambda: admin.create_subscription("no-such-topic", "all"))
        subscription = admin.get_subscription(topic, "all")
        assert subscription.name == "all" and subscription.max_delivery_count == 3, subscription
        subscription.lock_duration = timedelta(seconds=45)
        admin.update_subscription(topic, subscription)
        assert admin.get_subscription(topic, "all").lock_duration == timedelta(seconds=45)
        assert admin.get_subscription(topic, "red").requires_session
        assert [known.name for known in admin.list_subscriptions(topic)] == ["all", "red"]
        assert admin.get_topic_runtime_properties(topic).subscription_count == 2
        admin.delete_subscription(topic, "red")
        fails(ResourceNotFoundError, lambda: admin.get_subscription(topic, "red"))
        admin.delete_topic(topic)
        fails(ResourceNotFoundError, lambda: admin.get_topic(topic))


def check_rules():
    topic = f"rules-{RUN}"
    with client() as admin:
        admin.create_topic(topic)
        admin.create_subscription(topic, "s")
        assert [rule.name for rule in admin.list_rules(topic, "s")] == ["$Default"]
        assert isinstance(admin.get_rule(topic, "s", "$Default").filter, TrueRuleFilter)
        admin.delete_rule(topic, "s", "$Default")
        at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
        values = {"text": "ü & <x>", "count": 7, "large": 1 << 40, "weight": 0.5, "ripe": True, "at": at}
        correlation = CorrelationRuleFilter(label="fruit", correlation_id="c & d", properties=values)
        admin.create_rule(topic, "s", "by label", filter=correlation)
        sql = SqlRuleFilter("colour = 'red' AND grams > 100")
        admin.create_rule(topic, "s", "sql", filter=sql, action=SqlRuleAction("SET sold = TRUE"))
        admin.create_rule(topic, "s", "none", filter=FalseRuleFilter())
        fails(ResourceExistsError, lambda: admin.create_rule(topic, "s", "sql", filter=sql))
        fails(HttpResponseError, lambda: admin.create_rule(topic, "s", "wrong", filter=SqlRuleFilter("colour =")))
        found = admin.get_rule(topic, "s", "by label").filter
        assert found.label == "fruit" and found.correlation_id == "c & d", found
        assert {**found.properties, "at": at} == values, found.properties
        rule = admin.get_rule(topic, "s", "sql")
        assert rule.filter.sql_expression == sql.sql_expression and rule.action.sql_expression == "SET sold = TRUE", rule
        rule.filter = SqlRuleFilter("colour = 'blue'")
        admin.update_rule(topic, "s", rule)
        assert admin.get_rule(topic, "s", "sql").filter.sql_expression == "colour = 'blue'"
        assert len(list(admin.list_rules(topic, "s"))) == 3
        admin.delete_rule(topic, "s", "none")
        fails(ResourceNotFoundError, lambda: admin.get_rule(topic, "s", "none"))
        admin.delete_topic(topic)


def check_counts():
    queue, topic = f"counts-{RUN}", f"counted-{RUN}"
    string = connection_string(AMQP, more="UseDevelopmentEmulator=true;")
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with client() as admin, ServiceBusClient.from_connection_string(string) as bus:
        admin.create_queue(queue)
        admin.create_topic(topic)
        admin.create_subscription(topic, "s")
        with bus.get_queue_sender(queue) as sender, bus.get_topic_sender(topic) as publisher:
            sender.send_messages([ServiceBusMessage(str(at)) for at in range(3)])
            sender.schedule_messages(ServiceBusMessage("later"), later)
            publisher.send_messages(ServiceBusMessage("news"))
            publisher.schedule_messages(ServiceBusMessage("later"), later)
        with bus.get_queue_receiver(queue) as receiver:
            (first,) = receiver.receive_messages(1, max_wait_time=10)
            receiver.dead_letter_message(first, reason="bad")
        counts = admin.get_queue_runtime_properties(queue)
        found = (counts.active_message_count, counts.scheduled_message_count, counts.dead_letter_message_count)
        assert found == (2, 1, 1) and counts.total_message_count == 4 and counts.size_in_bytes > 0, found
        assert abs((datetime.now(timezone.utc) - counts.created_at_utc.replace(tzinfo=timezone.utc)).days) < 2
        limit = time.time() + 10
        while admin.get_subscription_runtime_properties(topic, "s").active_message_count != 1:
            assert time.time() < limit
            time.sleep(0.05)
        assert admin.get_topic_runtime_properties(topic).scheduled_message_count == 1
        admin.delete_queue(queue)
        admin.delete_topic(topic)


def check_rights():
    with client(name="reader", secret="s3cret-of-reader") as admin:
        assert fails(HttpResponseError, lambda: admin.create_queue("refused")).status_code == 403
        assert list(admin.list_queues()) == []
    with client(secret="guess") as admin:
        assert fails(HttpResponseError, lambda: admin.get_queue("refused")).status_code == 401


def main():
    failed = 0
    for name in [name for name in globals() if name.startswith("check_")]:
        began = time.time()
        try:
            globals()[name]()
            print(f"ok    administration: {name[6:]} ({time.time() - began:.1f} s)", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  administration: {name[6:]}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


main()
