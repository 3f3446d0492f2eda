"""The state of jobs in an S3-compatible service, beside the same jobs over hubs that nothing disturbs.

    store.py DIR

STORE_URL is the service that `store start DIR/store` has started. The cluster is a node. A shared job (two combiners) runs on
instances that are killed with kill -9, stopped with SIGSTOP and woken, while the service is killed and started again. The
output, read committed, must be byte for byte that of the undisturbed run. A single job is killed and goes on elsewhere. A wrong key and a
bucket that does not exist give an alarm that says so, and no failed job.
"""

import atexit
import json
import os
import pathlib
import subprocess
import sys
import time

from confluent_kafka import Producer

import checks
from checks import HERE, PARTITIONS, QUERIES, SERVER, Node, compare, embedded, ends, events, job_file, topic_in, topic_out, until
from instances import SESSION, Instance, has_read, last_rows

URL = os.environ["STORE_URL"]
FOLDER = pathlib.Path(sys.argv[1])
OBJECTS = FOLDER / "store" / "objects" / "state"
os.environ["STORE_SECRET"] = "store-secret"


def store(command):
    subprocess.run([HERE / "store", command, FOLDER / "store"], check=True)


def state(bucket="state", secret="${env:STORE_SECRET}", more=""):
    options = {"endpoint": URL, "region": "us-east-1", "access_key_id": "store-user",
               "secret_access_key": secret}
    options = ", ".join(f'{name} = "{value}"' for name, value in options.items())
    return f'[state]\npath = "s3://{bucket}/jobs"\noptions = {{ {options} }}\n{more}'


def job(name, query, section):
    return job_file(name, query, topic_in(SERVER, "e"), topic_out(SERVER, f"out-{name}")) + section


def stored(kind, name):
    """The objects of a kind of a job's state."""
    return sorted(path.relative_to(OBJECTS) for path in (OBJECTS / "jobs" / f"job.{name}").rglob(f"*.{kind}"))


def storing_since(moment, name):
    """The shards that have stored a checkpoint since."""
    return {path.parent for path in stored("checkpoint", name) if (OBJECTS / path).stat().st_mtime > moment}


def alarms(instance, name):
    return " ".join(instance.job(name).get("alarms", []))


class Input:
    def __init__(self, sent):
        self.sent, self.at = sent, 0
        self.producer = Producer({"bootstrap.servers": SERVER, "enable.idempotence": True})

    def send(self, part):
        """The events up to this part of all, from 0 to 1."""
        until_n = int(len(self.sent) * part)
        for partition, event in self.sent[self.at:until_n]:
            self.producer.produce("e", json.dumps(event).encode(), partition=partition)
        self.at = until_n
        self.producer.flush(30)


def has_all(instances, names):
    sent_to = ends(SERVER, "e")
    try:
        until(lambda: all(has_read(instances, name, sent_to) for name in names), f"{names} are read to {sent_to}")
    except SystemExit as problem:
        logs = [(instance.job(name), instance.log(name)[-8:]) for name in names for instance in instances if instance.runs]
        raise SystemExit(f"{problem}: {json.dumps(logs)}") from None


def check_refusals(instance):
    """Jobs that cannot reach their state say why, and go on waiting."""
    for name, reason in (("wrong-key", "refuses access; check the credentials"), ("no-bucket", "no such bucket"),
                         ("single-wrong-key", "refuses access; check the credentials")):
        until(lambda: reason in alarms(instance, name), f"{name} says why it waits: {instance.job(name)}")
        told = alarms(instance, name)
        if "store-secret" in told or "wrong-secret" in told:
            raise SystemExit(f"a secret is shown: {told}")
        print(f"ok: {name}: {told[:160]}")


def check_shared(nodes, input):
    one, two = nodes
    name = "counts"
    input.send(0.2)
    has_all(nodes, ["counts", "changes"])
    until(lambda: stored("checkpoint", name), "a checkpoint is stored")

    print("ok: checkpoints are in the service")
    one.kill()
    input.send(0.4)
    has_all([two], [name])
    one.start()
    until(lambda: any("takes" in line["text"] for line in one.log(name)), "the restarted instance gets its share")
    moved = time.time()
    until(lambda: len(storing_since(moved, name)) == 2 * PARTITIONS, "every shard has an owner that stores checkpoints")
    print("ok: another instance takes over after kill -9")
    # An outage: what runs goes on, and says that checkpoints are not stored.
    before = stored("manifest", name)
    store("kill")
    input.send(0.6)
    has_all(nodes, [name])
    until(lambda: "object store cannot be used" in alarms(one, name) + alarms(two, name), "the outage is an alarm")
    # The shards of the dead wait for the service.
    two.kill()
    input.send(0.7)
    until(lambda: alarms(one, name).count("checkpoints cannot be read or written") >= 2, "shards wait for the service")
    time.sleep(SESSION)
    if one.job(name)["state"] != "running":
        raise SystemExit(f"an outage of the store ended the job: {one.job(name)}")
    store("restart")
    has_all([one], [name, "changes"])
    until(lambda: alarms(one, name) == "", f"the alarms end: {alarms(one, name)}")
    until(lambda: stored("manifest", name) != before, "checkpoints are stored again")

    print("ok: an outage of the service is an alarm, and shards of the dead go on after it")
    # A zombie.
    two.start()
    until(lambda: any("takes" in line["text"] for line in two.log(name)), "the instance takes shards again")
    two.pause()
    input.send(0.9)
    has_all([one], [name])
    two.wake()
    input.send(1)
    has_all(nodes, [name, "changes"])
    print("ok: an instance that was stopped wakes up and finds others in its place")


def check_single(nodes, input):
    """A job that is not shared goes on where it is started next."""
    first, second = nodes
    first.start()
    until(lambda: stored("checkpoint", "large"), "a checkpoint is stored")
    first.kill()
    second.start()
    sent_to = ends(SERVER, "e")
    until(lambda: has_read([second], "large", sent_to), "the job is read elsewhere")
    second.stop()


def main():
    sent = list(events(3_000))
    expected = embedded(FOLDER / "embedded", sent)
    names = ["e", *(f"out-{name}" for name in (*QUERIES, "wrong-key", "no-bucket", "single-wrong-key"))]
    cluster = Node(FOLDER / "cluster", {}, "".join(f"[hubs.{name}]\npartitions = {PARTITIONS}\n" for name in names))
    atexit.register(cluster.process.kill)
    both = f'shared = true\nsession_timeout = "{SESSION}s"\ncombiners = {PARTITIONS}\n'
    jobs = {name: job(name, QUERIES[name], state(more=both)) for name in ("counts", "changes")}
    wrong = {"wrong-key": state(secret="wrong-secret", more=both), "no-bucket": state(bucket="nobody", more=both),
             "single-wrong-key": state(secret="wrong-secret")}
    refused = Instance(FOLDER, 2, {name: job(name, checks.COUNTS, section) for name, section in wrong.items()})
    refused.start()
    check_refusals(refused)
    refused.stop()
    nodes = [Instance(FOLDER, n, jobs) for n in range(2)]
    for node in nodes:
        node.start()
    input = Input(sent)
    check_shared(nodes, input)
    for name in jobs:
        compare(f"{name} with its state in the service", last_rows(SERVER, f"out-{name}", expected[name]), expected[name])
    for node in nodes:
        node.stop()
    single = [Instance(FOLDER, n, {"large": job("large", QUERIES["large"], state())}) for n in (3, 4)]
    check_single(single, input)
    compare("large, not shared, with its state in the service", last_rows(SERVER, "out-large", expected["large"]), expected["large"])
    cluster.stop()


if __name__ == "__main__":
    main()
