"""The checklist with kcat, as far as a command line tool can do it: no administration, no transactions, and no
timestamps of its own, so it cannot tell append times from others. Topics are made by confluent-kafka."""

import subprocess
import tempfile

from confluent_kafka.admin import AdminClient, NewTopic

from checklist import *

PLAIN = ["-b", BOOTSTRAP]
admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
todo = Checklist()


def name(what):
    return f"kcat-{what}-{RUN}"


def create(what, partitions=1):
    topic = name(what)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    until("the new topic is listed", lambda: topic in admin.list_topics(timeout=WAIT_S).topics)
    return topic


def kcat(*args, stdin=b"", server=PLAIN, fails=False):
    done = subprocess.run(["kcat", *server, *args], input=stdin, capture_output=True, timeout=2 * WAIT_S)
    if (done.returncode != 0) != fails:
        raise AssertionError(f"kcat {' '.join(args)[:80]} ended with {done.returncode}: {done.stderr.decode()[-300:]}")
    return done.stderr if fails else done.stdout


def send_lines(topic, first, count, *args, **kwargs):
    lines = b"".join(b"%d\n" % n for n in range(first, first + count))
    kcat("-P", "-t", topic, *args, stdin=lines, **kwargs)


def read(topic, *args, form="%s\n", server=PLAIN):
    """Everything in partition 0; -e ends kcat at the end of the partition."""
    start = () if "-o" in args else ("-o", "beginning")
    return kcat("-C", "-t", topic, "-p", "0", "-e", "-q", *start, "-f", form, *args, server=server)


def codec(codec):
    topic = create(f"codec-{codec}")
    rows = b"".join(b"k%d|%s%d\n" % (i, b"text that packs well " * 10, i) for i in range(95))
    headers = ("-H", "h=1", "-H", "h=2")
    codec_args = ("-z", codec) if codec != "none" else ()
    kcat("-P", "-t", topic, "-p", "0", "-K", "|", "-Z", *codec_args, *headers, stdin=rows + b"tombstone|\n")
    found = read(topic, form="%k|%S|%s|%h\n")
    want = b"".join(
        b"k%d|%d|%s%d|h=1,h=2\n" % (i, 210 + len(str(i)), b"text that packs well " * 10, i) for i in range(95)
    )
    same(found, want + b"tombstone|-1||h=1,h=2\n")


def large_record():
    topic = create("large")
    with tempfile.NamedTemporaryFile() as file:
        file.write(LARGE)
        file.flush()
        kcat("-P", "-t", topic, "-p", "0", file.name)
    same(read(topic, form="%s"), LARGE, "the large record")


def empty_topic():
    same(read(create("empty")), b"")


def unknown_topic():
    error = kcat("-C", "-t", name("nowhere"), "-p", "0", "-e", "-X", "allow.auto.create.topics=false", fails=True)
    assert b"nknown topic" in error or b"nknown partition" in error, f"got {error[-200:]}"


def offsets():
    topic = create("offsets")
    for n in range(3):
        send_lines(topic, n, 1)
        before = now_ms()
        until("the clock moves", lambda: now_ms() > before + 5)
    stamps = [int(stamp) for stamp in read(topic, form="%T\n").split()]
    ask = lambda at: kcat("-Q", "-t", f"{topic}:0:{at}").split()[-1]
    same([ask(-2), ask(-1)], [b"0", b"3"], "beginning and end")
    same([ask(stamps[1]), ask(stamps[1] + 1)], [b"1", b"2"], "offsets by time")
    same(read(topic, "-o", "2"), b"2\n", "from offset 2")
    same(read(topic, "-o", "-1"), b"2\n", "the last one")


def topics_admin():
    """Lists only."""
    topic = create("list", 3)
    found = kcat("-L", "-t", topic).decode()
    assert f'topic "{topic}" with 3 partitions' in found, f"got {found[:200]}"


class Member:
    """kcat as a member of a group, writing what it gets to a file."""

    def __init__(self, group, topic):
        self.file = tempfile.NamedTemporaryFile()
        self.errors = tempfile.NamedTemporaryFile()
        times = ("-X", "session.timeout.ms=10000", "-X", "heartbeat.interval.ms=500", "-X", "fetch.wait.max.ms=50")
        args = [
            "kcat",
            *PLAIN,
            "-G",
            group,
            *times,
            "-X",
            "auto.offset.reset=earliest",
            "-u",
            "-f",
            "%p %o %s\n",
            topic,
        ]
        self.process = subprocess.Popen(args, stdout=self.file, stderr=self.errors)

    def seen(self):
        with open(self.file.name) as file:
            return [tuple(int(word) for word in line.split()) for line in file if line.endswith("\n")]

    def joined(self):
        with open(self.errors.name) as file:
            return [line for line in file if "assigned:" in line]

    def leave(self):
        """The polite way: it commits and leaves the group."""
        self.process.terminate()
        same(self.process.wait(WAIT_S), 0, "end of kcat")


def group_rebalance():
    topic, group = create("group", 4), name("group")
    spread = ("-X", "sticky.partitioning.linger.ms=0")
    first = Member(group, topic)
    send_lines(topic, 0, 200, *spread)
    until("the first member reads all", lambda: len(first.seen()) == 200)
    second = Member(group, topic)
    until("the second member joins", second.joined)
    until("the first member is asked to share", lambda: len(first.joined()) == 2)
    send_lines(topic, 200, 200, *spread)
    numbers = lambda: {row[2] for member in (first, second) for row in member.seen()}
    until("both members read", lambda: len(numbers()) == 400)
    first.leave()
    until("the second member takes over", lambda: len(second.joined()) == 2)
    send_lines(topic, 400, 200, *spread)
    until("the second member reads the rest", lambda: len(numbers()) == 600)
    second.leave()
    rows = [("kcat", *row) for member in (first, second) for row in member.seen()]
    check_group_log(rows, 600)


def commit_resume():
    topic, group = create("resume"), name("resume")
    send_lines(topic, 0, 4)
    take = lambda: kcat("-G", group, "-e", "-q", "-X", "auto.offset.reset=earliest", topic)
    same(take(), b"0\n1\n2\n3\n", "first records")
    send_lines(topic, 4, 3)
    same(take(), b"4\n5\n6\n", "the other records")


def punctuation():
    """What the server writes where nothing comes is passed over, in the middle and at the end."""
    need(HTTP, "HTTP listener")
    topic, group = create("silence"), name("silence")
    for first in [0, 3]:
        send_lines(topic, first, 3, "-p", "0")
        punctuate(topic), punctuate(topic)
    same(kcat("-Q", "-t", f"{topic}:0:-1").split()[-1], b"10", "end")
    for level in ["read_committed", "read_uncommitted"]:
        rows = lambda *args: read(topic, "-X", f"isolation.level={level}", *args, form="%o %s\n").split(b"\n")[:-1]
        same(rows(), [b"0 0", b"1 1", b"2 2", b"5 3", b"6 4", b"7 5"])
        same(rows("-o", "4"), [b"5 3", b"6 4", b"7 5"], "from 4")
        same(rows("-o", "8"), [], "from 8")
    take = lambda: kcat("-G", group, "-e", "-q", "-X", "auto.offset.reset=earliest", topic)
    same(take(), b"0\n1\n2\n3\n4\n5\n", "first records")
    punctuate(topic)
    send_lines(topic, 6, 2, "-p", "0")
    same(take(), b"6\n7\n", "what came after the silence")


def idempotent_cut():
    need(PROXY, "proxy")
    topic = create("cut")
    before = cuts()
    conf = ("-E", "-X", "enable.idempotence=true", "-X", "linger.ms=2", "-X", "batch.num.messages=10")
    send_lines(topic, 0, 500, "-p", "0", *conf, server=["-b", PROXY])
    assert cuts() > before, "no connection was cut"
    same([int(line) for line in read(topic).split()], list(range(500)))


def sasl(bootstrap, password, *more):
    login = ("-X", "sasl.mechanism=PLAIN", "-X", f"sasl.username={USER}", "-X", f"sasl.password={password}")
    protocol = "SASL_SSL" if more else "SASL_PLAINTEXT"
    return ["-b", bootstrap, "-X", f"security.protocol={protocol}", *login, *more]


def round_trip(what, server):
    topic = create(what)
    send_lines(topic, 0, 10, "-p", "0", server=server)
    same([int(line) for line in read(topic, server=server).split()], list(range(10)))


def sasl_ok():
    round_trip("sasl", sasl(need(SASL, "SASL listener"), PASSWORD))


def sasl_wrong():
    error = kcat("-L", "-m", "5", server=sasl(need(SASL, "SASL listener"), "wrong"), fails=True)
    assert b"uthentication" in error, f"got {error[-200:]}"


def tls():
    need(TLS, "TLS listener")
    round_trip("tls", sasl(TLS, PASSWORD, "-X", f"ssl.ca.location={CA}"))


def mtls():
    need(MTLS, "listener that asks for certificates")
    trust = ["-b", MTLS, "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={CA}"]
    own = ["-X", f"ssl.certificate.location={credential('client.pem')}", "-X", f"ssl.key.location={credential('client.key')}"]
    round_trip("mtls", trust + own)
    kcat("-L", "-m", "5", server=trust, fails=True)


for each in CODECS:
    todo.report(f"codec_{each}", lambda: codec(each))
for check in [large_record, empty_topic, unknown_topic, offsets, topics_admin, group_rebalance]:
    todo.report(check.__name__, check)
for check in [commit_resume, punctuation, idempotent_cut, sasl_ok, sasl_wrong, tls, mtls]:
    todo.report(check.__name__, check)
todo.end()
