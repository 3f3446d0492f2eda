"""Microsoft's SDKs over WebSocket, unchanged, against a node: sockets.py HTTPS_PORT CA_FILE QUEUE HUB

Sends and receives over AMQP in WebSockets with TLS, Service Bus and Event Hubs. Ends with 1 if a check failed.
"""

import sys
import threading

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub import TransportType as HubTransport
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

PORT, CA, QUEUE, HUB = sys.argv[1:5]
ADDRESS = f"sb://127.0.0.1:{PORT}"


def string(secret="s3cret-of-root"):
    return f"Endpoint=sb://127.0.0.1;SharedAccessKeyName=root;SharedAccessKey={secret}"


def bus(**of):
    return ServiceBusClient.from_connection_string(
        string(**of), transport_type=TransportType.AmqpOverWebsocket, custom_endpoint_address=ADDRESS, connection_verify=CA,
        retry_total=0,
    )


def hub(kind, **options):
    return kind.from_connection_string(
        string(), eventhub_name=HUB, transport_type=HubTransport.AmqpOverWebsocket, custom_endpoint_address=ADDRESS,
        connection_verify=CA, **options,
    )


def service_bus():
    bodies = ["small", "x" * 300_000]  # The second takes several frames.
    with bus() as client, client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body))
        got = []
        while len(got) < len(bodies):
            for message in receiver.receive_messages(5, max_wait_time=10):
                got.append(str(message))
                receiver.renew_message_lock(message)
                receiver.complete_message(message)
        assert got == bodies, [len(body) for body in got]
    with bus(secret="guess") as client:
        sender = client.get_queue_sender(QUEUE)
        try:
            sender.send_messages(ServiceBusMessage("refused"))
        except ServiceBusError:
            pass
        else:
            raise AssertionError("a wrong key is accepted")
        finally:
            sender.close()


def event_hubs():
    with hub(EventHubProducerClient) as producer:
        batch = producer.create_batch()
        for at in range(10):
            batch.add(EventData(str(at)))
        producer.send_batch(batch)
    consumer, got, done = hub(EventHubConsumerClient, consumer_group="$Default"), [], threading.Event()

    def take(_, event):
        got.append(event.body_as_str())
        if len(got) == 10:
            done.set()

    thread = threading.Thread(target=lambda: consumer.receive(on_event=take, starting_position="-1"))
    thread.start()
    assert done.wait(30), got
    consumer.close()
    thread.join()
    assert sorted(got, key=int) == [str(at) for at in range(10)], got


service_bus()
print("ok    Python, Service Bus over WebSocket", flush=True)
event_hubs()
print("ok    Python, Event Hubs over WebSocket", flush=True)
