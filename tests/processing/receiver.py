#!/usr/bin/env python3
"""A webhook that records every request in a ledger before it answers.

    receiver.py PORT LEDGER MODE_FILE

A line is `TIME ID ATTEMPT STATUS BODY`. The status depends on the first word in MODE_FILE: `ok` answers 200 but
fails some attempts and refuses events whose body ends in 99; `down` answers 503 to all.
"""
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, ledger_path, mode_path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
ledger = open(ledger_path, "a", buffering=1)
lock = threading.Lock()


def status_for(mode, body, attempt):
    if mode == "down":
        return 503
    if body.endswith("99"):
        return 422
    if body.endswith("77") and attempt < 3:
        return 500
    return 200


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        event, attempt = self.headers["highwater-id"], int(self.headers["highwater-attempt"])
        assert self.headers["idempotency-key"] == event
        with open(mode_path) as mode:
            status = status_for(mode.read().split()[0], body, attempt)
        with lock:
            ledger.write(f"{time.time():.3f} {event} {attempt} {status} {body}\n")
        self.send_response_only(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


Server(("127.0.0.1", port), Handler).serve_forever()
