#!/usr/bin/env python3
"""Checks the ledger of `receiver.py` against the sent events.

    check.py LEDGER SENT_COUNT DEAD_JSON [QUIET_FROM QUIET_UNTIL]

Every acknowledged event is handled at least once or is a dead letter; an id has one body; attempts of an event count up
from 1, and from 1 again after a kill; no delivery arrives while the circuit is open.
"""
import json
import sys

ledger_path, sent, dead_path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
quiet = [float(at) for at in sys.argv[4:6]]
dead = {letter["id"] for letter in json.load(open(dead_path))}

bodies, taken, last, deliveries, repeats = {}, set(), {}, 0, 0
for line in open(ledger_path):
    at, event, attempt, status, body = line.split()
    attempt = int(attempt)
    assert bodies.setdefault(event, body) == body, f"{event} came with two bodies"
    assert attempt in (1, last.get(event, 0) + 1), f"{event}: attempt {attempt} after {last.get(event)}"
    assert not quiet or not quiet[0] < float(at) < quiet[1], f"{event} came while the circuit was open"
    last[event] = attempt
    deliveries += 1
    if status == "200":
        repeats += event in taken
        taken.add(event)

by_body = {body for event, body in bodies.items() if event in taken}
lost = [n for n in range(sent) if f"e{n}" not in by_body and not any(bodies.get(event) == f"e{n}" for event in dead)]
assert not lost, f"{len(lost)} of {sent} events are neither taken nor dead letters: {lost[:10]}"
bad = [n for n in range(sent) if str(n).endswith("99")]
named = {bodies[event] for event in dead if event in bodies}
assert {f"e{n}" for n in bad} <= named, "a refused event is no dead letter"
assert len(dead) <= len(bad) + 30, f"{len(dead)} dead letters for {len(bad)} refused events"
print(f"{sent} events: {len(taken)} taken, {repeats} of them again, {len(dead)} dead letters, {deliveries} deliveries")
