"""The servers to talk to, the records to send, the way to report.

A check is a function that returns when all is well, raises `Skip` when its client cannot do it, and raises anything
else when the server or the client got it wrong.
"""

import os
import sys
import time
import traceback
import urllib.request
import uuid

BOOTSTRAP = os.environ.get("HW_BOOTSTRAP", "127.0.0.1:9092")
SASL = os.environ.get("HW_SASL")
TLS = os.environ.get("HW_TLS")
CA = os.environ.get("HW_CA")
HTTP = os.environ.get("HW_HTTP")
MTLS = os.environ.get("HW_MTLS")
CREDENTIALS = os.environ.get("HW_CREDENTIALS")
USER = os.environ.get("HW_USER", "app")
PASSWORD = os.environ.get("HW_PASSWORD", "s3cret")
PROXY = os.environ.get("HW_PROXY")
PROXY_LOG = os.environ.get("HW_PROXY_LOG")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RUN = uuid.uuid4().hex[:8]
LARGE = bytes(range(256)) * 3600  # 900 KiB
WAIT_S = 30


class Skip(Exception):
    pass


def records(null_headers=True):
    """(key, value, headers) with everything that is easily lost on the way."""
    binary = bytes(range(256))
    rows = [
        (b"key", b"value", [("h", b"1"), ("h", b"2"), ("bytes", b"\x00\xff")]),
        (None, b"no key", []),
        (b"tombstone", None, [("why", b"deleted")]),
        (b"", b"", [("empty", b"")] + [("null", None)] * null_headers),
        (binary, binary * 8, []),
    ]
    return rows + [(b"k%d" % i, b"text that packs well " * 10 + b"%d" % i, []) for i in range(95)]


def same(got, want, what="records"):
    if got == want:
        return
    if isinstance(got, list) and isinstance(want, list):
        if len(got) != len(want):
            raise AssertionError(f"{what}: {len(got)} of {len(want)}")
        at = next(i for i, (g, w) in enumerate(zip(got, want)) if g != w)
        raise AssertionError(f"{what}: at {at} got {got[at]!r:.200} want {want[at]!r:.200}")
    raise AssertionError(f"{what}: got {got!r:.200} want {want!r:.200}")


def need(value, what):
    if not value:
        raise Skip(f"no {what}")
    return value


def credential(name):
    """The path of a certificate, key or token of the user."""
    return os.path.join(need(CREDENTIALS, "folder of credentials"), name)


def token(name):
    with open(credential(name)) as file:
        return file.read()


def until(what, step, wait_s=WAIT_S):
    """Calls step until it returns something true."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        got = step()
        if got:
            return got
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {wait_s} s")


def fails(what, names, act):
    """act must raise an error in whose text or type one of the names occurs."""
    try:
        got = act()
    except Exception as error:
        text = f"{type(error).__name__} {error!r} {error}"
        if any(name in text for name in names):
            return
        raise AssertionError(f"{what}: want {names[0]}, got {text:.300}") from error
    raise AssertionError(f"{what}: want {names[0]}, got {got!r:.200}")


def now_ms():
    return int(time.time() * 1000)


def cuts():
    """How often the proxy has cut a connection."""
    with open(PROXY_LOG) as log:
        return len(log.readlines())


def punctuate(topic):
    """Says in partition 0 that nothing came up to now, which takes an offset."""
    url = f"{need(HTTP, 'HTTP listener')}/api/hubs/{topic}/partitions/0/punctuate"
    request = urllib.request.Request(url, method="POST", headers={"Authorization": f"Bearer {USER}:{PASSWORD}"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        same(answer.status, 200, "status of a punctuation")


def check_append_time(stamps, before_ms, asked_ms):
    """The clock of this machine brackets the stamps, and none is the time that the producer asked for."""
    after_ms = now_ms()
    if not all(before_ms - 1000 <= stamp <= after_ms + 1000 for stamp in stamps):
        raise AssertionError(f"append times {stamps[:3]} are not between {before_ms} and {after_ms}")
    if asked_ms in stamps:
        raise AssertionError("the producer's time came back")


def check_group_log(seen, total):
    """seen: (member, partition, offset, number) in the order of delivery; every number once."""
    numbers = sorted(row[3] for row in seen)
    missing = sorted(set(range(total)) - set(numbers))
    if missing:
        raise AssertionError(f"{len(missing)} records lost, first {missing[0]}")
    if len(numbers) != total:
        twice = [row for row in seen if numbers.count(row[3]) > 1]
        raise AssertionError(
            f"{len(numbers) - total} records delivered twice, first {sorted(twice, key=lambda r: r[3])[:2]}"
        )


class Checklist:
    """Runs checks, all or those named on the command line, and prints a line for each."""

    def __init__(self):
        self.only = set(sys.argv[1:])
        self.failed = 0

    def report(self, name, act):
        if self.only and name not in self.only:
            return
        started = time.monotonic()
        try:
            act()
            print(f"ok {name} {time.monotonic() - started:.1f}s", flush=True)
        except Skip as reason:
            print(f"skip {name} {reason}", flush=True)
        except Exception as error:
            self.failed += 1
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"FAIL {name} {text[:400]}", flush=True)
            traceback.print_exc()

    def end(self):
        sys.stdout.flush()
        os._exit(1 if self.failed else 0)
