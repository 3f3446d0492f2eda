"""Celery with kombu's transport for Service Bus, unchanged, against a node: celery_check.py HTTPS_PORT AMQPS_PORT CA_FILE

The transport knows names of Azure and their ports only. So this program resolves one such name to this machine, and trusts the authority of
the tests. Ends with 1 if a check failed.
"""

import os
import socket
import sys
import threading

import certifi

HTTPS, AMQPS, CA = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
HOST = "highwater.servicebus.windows.net"
resolve = socket.getaddrinfo


def local(host, port, *more, **options):
    if host == HOST:
        host, port = "127.0.0.1", {443: HTTPS, 5671: AMQPS}[int(port)]
    return resolve(host, port, *more, **options)


socket.getaddrinfo = local
certifi.where = lambda: CA
os.environ["REQUESTS_CA_BUNDLE"] = CA

from celery import Celery  # noqa: E402
from celery.contrib.testing.worker import start_worker  # noqa: E402

app = Celery("checks", broker=f"azureservicebus://root:s3cret-of-root@{HOST}", backend="cache+memory://")
app.conf.task_default_queue = "celery-checks"
app.conf.worker_hijack_root_logger = False
app.conf.broker_transport_options = {"wait_time_seconds": 1}
tried, lock = {}, threading.Lock()


@app.task
def add(a, b):
    return a + b


@app.task(bind=True, max_retries=3)
def third_time(self, name):
    with lock:
        tried[name] = tried.get(name, 0) + 1
    if tried[name] < 3:
        raise self.retry(countdown=0)
    return tried[name]


with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=60):
    results = [add.delay(at, at) for at in range(20)]
    assert [result.get(timeout=60) for result in results] == [2 * at for at in range(20)]
    assert third_time.delay("x").get(timeout=60) == 3
print("ok    Celery over kombu's azureservicebus", flush=True)
