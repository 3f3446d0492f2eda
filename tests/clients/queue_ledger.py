"""A queue `q` that is worked on while its node dies, and the book that holds it to its answers.

Senders, receivers and the book are threads. A message that was acknowledged is delivered until it is completed; one whose
completion was acknowledged never again; none while somebody holds its lock, also across a kill; and its count of deliveries
only grows. Requests that were not answered may have counted or not.
"""

import collections
import http.client
import json
import random
import threading
import time
from datetime import datetime


class Book:
    def __init__(self):
        self.lock = threading.Lock()
        self.acknowledged = set()
        self.asked = set()
        self.completed = set()
        self.holders = {}
        self.counts = collections.defaultdict(int)
        self.wrong = []

    def delivered(self, message):
        number, until = message["sequence"], moment(message["locked_until"])
        with self.lock:
            if number in self.completed:
                self.wrong.append(f"{number} was delivered after it was completed")
            if self.holders.get(number, 0) > time.time():
                self.wrong.append(f"{number} was delivered while somebody held it")
            if message["deliveries"] <= self.counts[number]:
                self.wrong.append(f"the count of {number} went back to {message['deliveries']}")
            self.holders[number] = until
            self.counts[number] = message["deliveries"]

    def gives_back(self, number):
        with self.lock:
            self.holders.pop(number, None)

    def asks(self, number):
        with self.lock:
            self.asked.add(number)

    def is_completed(self, number):
        with self.lock:
            if number in self.completed:
                self.wrong.append(f"{number} was completed twice")
            self.completed.add(number)


def moment(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Connection:
    """To one of the nodes at these ports, chosen anew after a failure."""

    def __init__(self, ports):
        self.ports = ports
        self.http = None

    def post(self, path, body):
        """The answer, or None when nobody knows what became of the request."""
        try:
            if self.http is None:
                self.http = http.client.HTTPConnection("127.0.0.1", random.choice(self.ports), timeout=10)
            self.http.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = self.http.getresponse()
            text = answer.read()
            if answer.status == 503:
                time.sleep(0.1)
            return answer.status, json.loads(text or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            self.http = None
            time.sleep(0.05)
            return None


def send(book, stop, ports):
    connection = Connection(ports)
    while not stop.is_set():
        batch = [{"body": random.random()} for _ in range(random.randint(1, 20))]
        answer = connection.post("/queues/q/batch", batch)
        if answer and answer[0] == 201:
            with book.lock:
                book.acknowledged.update(message["sequence"] for message in answer[1]["messages"])
        time.sleep(random.random() * 0.02)


def receive(book, stop, ports):
    connection, done, given_back = Connection(ports), {}, []
    while not stop.is_set():
        # What is at hand is settled on the way; a request that is not answered may have counted or not.
        handed_in = {"complete": list(done), "abandon": given_back}
        answer = connection.post("/queues/q/receive?max=10&wait=200ms", handed_in)
        if not answer or answer[0] != 200:
            done, given_back = {}, []
            continue
        failed = {failure["of"] for failure in answer[1].get("failed", [])}
        for token, number in done.items():
            if token not in failed:
                book.is_completed(number)
        done, given_back = {}, []
        for message in answer[1]["messages"]:
            book.delivered(message)
        time.sleep(random.random() * 0.02)
        for message in answer[1]["messages"]:
            choice = random.random()
            if choice < 0.5:
                settle(connection, book, message)
            elif choice < 0.6:
                book.gives_back(message["sequence"])
                given_back.append(message["token"])
            else:
                book.asks(message["sequence"])
                done[message["token"]] = message["sequence"]


def settle(connection, book, message):
    number, tokens = message["sequence"], {"tokens": [message["token"]]}
    choice = random.random()
    if choice < 0.1:
        return  # forgotten: its lock runs out
    if choice < 0.2:
        book.gives_back(number)
        connection.post("/queues/q/abandon", tokens)
        return
    book.asks(number)
    answer = connection.post("/queues/q/complete", tokens)
    if answer and answer[0] == 200:
        book.is_completed(number)


def drain(book, ports):
    """Receives what is left, and returns its numbers."""
    left, connection, deadline = set(), Connection(ports), time.time() + 60
    while time.time() < deadline:
        answer = connection.post("/queues/q/receive?max=1000", {})
        if not answer or answer[0] == 503:
            continue
        if answer[0] != 200 or not answer[1]["messages"]:
            return left
        for message in answer[1]["messages"]:
            book.delivered(message)
            left.add(message["sequence"])
    raise SystemExit("the queue does not answer")


def verdict(book, left):
    """What is wrong; prints the counts."""
    lost = book.acknowledged - book.asked - left
    wrong = book.wrong + [f"{number} is lost" for number in sorted(lost)[:10]]
    print(
        f"{len(book.acknowledged)} acknowledged, {len(book.completed)} completed, {len(left)} left, "
        f"{sum(book.counts.values())} deliveries, {len(wrong)} wrong"
    )
    return wrong
