"""The checks of tests/deploy/run: checks.py ROOT HELM [HIGHWATER]"""

import os
import pathlib
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

ROOT, HELM, BINARY = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
CHART = ROOT / "deploy" / "helm"
KUBERNETES = "1.31"
LOG = "kafka://kafka-1:9092,kafka-2:9092"

# Values of a release, and the objects that it must have.
BASE = {"ConfigMap": 1, "Service": 2, "StatefulSet": 1, "PodDisruptionBudget": 1}
RELEASES = {
    "one-node": ({"replicas": 1}, BASE),
    "cluster": ({"log": LOG, "cluster": {"prefix": "plant-7.", "sessionSeconds": 15}}, BASE),
    "tls": ({"log": LOG, "http": {"tls": {"secretName": "highwater-tls"}}, "storage": {"className": "fast"}}, BASE),
    "scaled": ({"log": LOG, "autoscaling": {"enabled": True, "averageValue": "500"}},
               {**BASE, "HorizontalPodAutoscaler": 1}),
    "whole": ({
        "log": LOG, "replicas": 3,
        "settings": '[cluster]\nsasl = { mechanism = "SCRAM-SHA-512", user = "u", password = "${env:KAFKA_PASSWORD}" }\n'
                    '[queues.jobs]\n[workflows.order]\nfile = "order.toml"\n',
        "files": {"order.toml": 'name = "order"\n[services.shop]\nurl = "http://shop:80"\n[[steps]]\nname = "pay"\n'
                                'service = "shop"\ncall = "PUT /pay/{{id}}"\n'},
        "env": [{"name": "KAFKA_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "kafka", "key": "password"}}}],
        "keys": [{"name": "app", "rights": ["send"], "secretName": "app", "secretKey": "key"},
                 {"name": "ops", "rights": ["listen", "manage"], "secretName": "ops", "secretKey": "key"}],
        "podDisruptionBudget": {"enabled": False}, "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "events", "operator": "Exists"}],
    }, {**BASE, "PodDisruptionBudget": 0}),
}
# Values that cannot work, and the words of the refusal.
REFUSED = [
    ({"replicas": 2}, "several nodes need a cluster"),
    ({"replicas": 1, "autoscaling": {"enabled": True}}, "several nodes need a cluster"),
    ({"log": LOG, "terminationGracePeriodSeconds": 10}, "must be longer"),
    ({"log": LOG, "keys": []}, "needs keys"),
]
count = 0


def check(holds, what):
    global count
    count += 1
    if not holds:
        sys.exit(f"tests/deploy: {what}")


def helm(command, values):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        version = ["--kube-version", f"{KUBERNETES}.0"]
        return subprocess.run([HELM, *command, str(CHART), *version, "-f", file.name], capture_output=True, text=True)


def render(name, values):
    linted = helm(["lint", "--strict"], values)
    check(linted.returncode == 0, f"{name}: helm lint: {linted.stdout}{linted.stderr}")
    rendered = helm(["template", name], values)
    check(rendered.returncode == 0, f"{name}: helm template: {rendered.stderr}")
    return [document for document in yaml.safe_load_all(rendered.stdout) if document]


def accept(what, settings, variables, files=()):
    """A node accepts the settings; it resolves secrets, so they are there."""
    if not BINARY:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        settings = settings.replace("/etc/highwater/keys/", f"{folder}/key-")
        for key in ("admin", "app", "ops"):
            (path / f"key-{key}").write_text("a secret for the test\n")
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (path / name).write_text("")
        for name, content in files:
            (path / name).write_text(content)
        (path / "highwater.toml").write_text(settings)
        variables = {name: value.replace("/etc/highwater/tls", folder) for name, value in variables.items()}
        environment = {**os.environ, **variables}
        shown = subprocess.run([BINARY, "config", "show", "-c", str(path / "highwater.toml")],
                               capture_output=True, text=True, env=environment)
        check(shown.returncode == 0, f"{what}: the node refuses its settings: {shown.stderr}{settings}")


def check_release(name, values, expected):
    objects = render(name, values)
    for document in objects:
        try:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            check(False, f"{name}: {document['kind']}: {error}")
        check(True, name)
    for kind, number in expected.items():
        found = sum(document["kind"] == kind for document in objects)
        check(found == number, f"{name}: {found} of {kind}, not {number}")
    [nodes] = [document for document in objects if document["kind"] == "StatefulSet"]
    [settings] = [document for document in objects if document["kind"] == "ConfigMap"]
    pod = nodes["spec"]["template"]["spec"]
    [container] = pod["containers"]
    variables = {entry["name"]: entry.get("value", "secret") for entry in container["env"]}
    variables = {key: value.replace("$(POD_NAME)", f"{name}-0").replace("$(POD_NAMESPACE)", "default")
                 for key, value in variables.items()}
    services = [document["metadata"]["name"] for document in objects if document["kind"] == "Service"]
    check(nodes["spec"]["serviceName"] in services, f"{name}: the pods have no names")
    if "HIGHWATER_CLUSTER_ADVERTISE" in variables:
        host = f"{name}-0.{nodes['spec']['serviceName']}.default.svc"
        check(host in variables["HIGHWATER_CLUSTER_ADVERTISE"], f"{name}: no pod has the advertised address")
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]} | {"data"}
    check(mounts == volumes, f"{name}: volumes {volumes}, mounted {mounts}")
    check(all(container[probe] for probe in ("startupProbe", "livenessProbe", "readinessProbe")), f"{name}: probes")
    text = settings["data"].pop("highwater.toml")
    accept(name, text, variables, settings["data"].items())


def check_compose():
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    services = compose["services"]
    brokers = {name: service for name, service in services.items() if name.startswith("kafka-")}
    nodes = {name: service for name, service in services.items() if name.startswith("highwater-")}
    check(len(brokers) == 3 and len(nodes) == 2, "compose: three brokers and two nodes")
    voters = {service["environment"]["KAFKA_CONTROLLER_QUORUM_VOTERS"] for service in brokers.values()}
    expected = ",".join(f"{service['environment']['KAFKA_NODE_ID']}@{name}:9093" for name, service in brokers.items())
    check(voters == {expected}, f"compose: the voters are {voters}, not {expected}")
    for name, service in services.items():
        check("image" in service and service["restart"] == "unless-stopped", f"compose: {name}")
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            known = source in compose["volumes"] or (ROOT / "deploy" / source).is_file()
            check(known, f"compose: {name} has an unknown volume {source}")
    ports = [port for node in nodes.values() for port in node["ports"]]
    check(len(set(ports)) == 2 and all(port.startswith("127.0.0.1:") for port in ports), "compose: ports")
    text = (ROOT / "deploy" / "highwater.toml").read_text()
    for name, service in nodes.items():
        variables = dict(service["environment"])
        check(variables["HIGHWATER_CLUSTER_ADVERTISE"] == f"http://{name}:8080", f"compose: the address of {name}")
        check(set(service["depends_on"]) == set(brokers), f"compose: {name} waits for the brokers")
        variables["HIGHWATER_ADMIN_SECRET"] = "a secret for the test"
        accept(name, text, variables)


def check_dockerfile():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    stages = [line.split()[1] for line in lines if line.startswith("FROM")]
    wanted = next(line.split('"')[1] for line in (ROOT / "Cargo.toml").read_text().splitlines()
                  if line.startswith("rust-version"))
    check(len(stages) == 2 and stages[0].startswith(f"rust:{wanted}-"), f"Dockerfile: it builds with {stages[0]}")
    check("USER 10001" in lines, "Dockerfile: it runs as root")


for release, (values, expected) in RELEASES.items():
    check_release(release, values, expected)
for values, words in REFUSED:
    refused = helm(["template", "refused"], values)
    check(refused.returncode != 0 and words in refused.stderr, f"{values} is not refused: {refused.stderr}")
check_compose()
check_dockerfile()
print(f"tests/deploy: {count} checks hold" + ("" if BINARY else "; the settings were not shown to a node"))
