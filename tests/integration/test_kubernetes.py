#!/usr/bin/env python3
"""docker/kubernetes: the manifests fit Kubernetes' schema and each other, and the commands in them make a cluster whose pods are
drained, one after the other, without a bit lost. No Kubernetes runs here: its part is played by processes."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess

from gate import Gate
from harness import BUILD, PATIENCE, PEER_PYTHON, ROOT, Folder, Process, Skip, main, own_address, program, wait_for, weir

VERSION = "1.30"
MANIFESTS = os.path.join(ROOT, "docker", "kubernetes")
STEPS = 60


def make_secrets(folder):
    """What secrets.sh prints, of an authority of its own."""
    certs = folder.file("certs")
    weir("certs", "init", certs)
    done = subprocess.run([os.path.join(MANIFESTS, "secrets.sh"), certs], capture_output=True, text=True, check=True)
    assert "ca-key" not in done.stdout
    return folder.file("secrets.yaml", done.stdout)


def resources(*paths):
    """{file name: its resources}, which are valid."""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    done = subprocess.run([PEER_PYTHON, os.path.join(os.path.dirname(__file__), "peer_kubernetes.py"), VERSION, *paths],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return {os.path.basename(path): found for path, found in json.loads(done.stdout).items()}


def manifests(*more):
    return resources(*sorted(glob.glob(os.path.join(MANIFESTS, "*.yaml"))), *more)


def pods(found):
    """{component: spec of its pods}"""
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for some in found.values() for one in some
            if one["kind"] in ("StatefulSet", "Deployment")}


def test_manifests_and_secrets_fit_the_schema_and_a_wrong_one_does_not():
    with Folder() as folder:
        manifests(make_secrets(folder))
        with open(os.path.join(MANIFESTS, "server.yaml")) as file:
            wrong = folder.file("wrong.yaml", file.read().replace("replicas: 2", "replicas: two"))
        try:
            resources(wrong)
        except AssertionError as refused:
            assert "StatefulSet server" in str(refused), refused
        else:
            raise AssertionError("a number of replicas that is none was taken")


def test_manifests_fit_each_other():
    with Folder() as folder:
        found = manifests(make_secrets(folder))
        secrets = {one["metadata"]["name"]: set(one["data"]) for one in found.pop("secrets.yaml")}
        kustomization = found.pop("kustomization.yaml")[0]
        assert set(kustomization["resources"]) == set(found)
        images = {image["name"] for image in kustomization["images"]}
        claims = {"redis": "data"}
        for component, pod in pods(found).items():
            container, = pod["containers"]
            assert container["image"] in images, component
            assert pod["securityContext"]["runAsUser"] == 10001 and container["securityContext"]["readOnlyRootFilesystem"], component
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]} and "memory" in container["resources"]["limits"]
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted == {volume["name"] for volume in pod["volumes"]} | {claims.get(component, "tmp")}, component
            for source in (source for volume in pod["volumes"] for source in volume.get("projected", {}).get("sources", [])):
                assert {item["key"] for item in source["secret"]["items"]} == secrets[source["secret"]["name"]], component
        every = [one for some in found.values() for one in some]
        budgets = {one["metadata"]["name"] for one in every if one["kind"] == "PodDisruptionBudget"}
        policies = {one["metadata"]["name"] for one in every if one["kind"] == "NetworkPolicy"}
        assert budgets == set(pods(found)) - {"client"} and policies == set(pods(found)) | {"nothing-else", "everybody"}
        scaler, = found["worker-scaler.yaml"]
        external = scaler["spec"]["metrics"][0]["external"]
        with open(os.path.join(ROOT, "common", "metrics", "metric.def")) as table:
            assert re.search(rf'COORDINATOR, GAUGE, "{external["metric"]["name"]}"', table.read())
        args = pods(found)["worker"]["containers"][0]["args"]
        assert external["target"]["averageValue"] == args[args.index("--threads") + 1]
        for component in ("coordinator", "server", "worker"):
            template, = [one["spec"]["template"] for some in found.values() for one in some
                         if one["kind"] in ("StatefulSet", "Deployment") and one["metadata"]["name"] == component]
            container, = template["spec"]["containers"]
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            assert template["metadata"]["annotations"] == {"prometheus.io/scrape": "true", "prometheus.io/scheme": "https",
                                                           "prometheus.io/port": str(ports["metrics"])}, component
            assert f"0.0.0.0:{ports['metrics']}" in container["args"], component
        limit = pods(found)["server"]["containers"][0]["args"]
        assert int(limit[limit.index("--leave-limit") + 1]) < pods(found)["server"]["terminationGracePeriodSeconds"]
        with open(os.path.join(ROOT, "docker", "Dockerfile")) as lines:
            assert "uid 10001" in lines.read()


class Pod:
    """A process as its container starts it: the arguments and the environment of the manifest, with places of this machine."""

    def __init__(self, spec, places, gate):
        container, = spec["containers"]
        self.environment = {"PATH": f"{BUILD}:{os.environ['PATH']}", **gate.variables}
        for variable in container["env"]:
            if "value" in variable and variable["name"] not in ("WEIR_STORE", "WEIR_STORE_PASSWORD_FILE"):
                self.environment[variable["name"]] = places(variable["value"])
        self.environment["WEIR_STORE"] = places("STORE")
        self.probe = [places(word) for word in container["livenessProbe"]["exec"]["command"]]
        name, *arguments = map(places, container["args"])
        # On a slow machine a server may come back late to the next coordinator.
        self.command = [program(name), *arguments, *(("--server-grace", "3600") if "--role=coordinator" in arguments else ())]
        self.process = None

    def start(self):
        self.process = Process(*self.command, env=self.environment)

    def is_alive(self):
        environment = {key: value for key, value in self.environment.items() if key != "LD_PRELOAD"}
        return subprocess.run(self.probe, env=environment, capture_output=True, check=False).returncode == 0

    def keep(self):
        """A coordinator that another one deposed ends, and kubelet starts its container again."""
        if self.has_ended():
            self.process.__exit__()
            self.start()

    def end(self):
        self.process.send(signal.SIGTERM)

    def has_ended(self):
        return self.process.child.poll() is not None

    def replace(self):
        """Its process has ended, and another pod takes its place."""
        assert self.process.wait() == 0 or "another coordinator leads" in self.process.output(), self.process.output()[-2000:]
        self.process.__exit__()
        self.start()


def knows_a_hold(worker):
    views = [line for line in worker.output().splitlines() if " view " in line]
    return views and not views[-1].endswith(" hold=0")


def mount_secret(folder, certs, role):
    """As kubelet lays out a volume: links to links, so that all files change at once."""
    place = folder.file(f"run-{role}")
    shutil.copytree(os.path.join(certs, role), os.path.join(place, "tls", "..2026_11_26"))
    os.symlink("..2026_11_26", os.path.join(place, "tls", "..data"))
    for name in ("ca.pem", "cert.pem", "key.pem"):
        os.symlink(os.path.join("..data", name), os.path.join(place, "tls", name))
    return place


def start_pods(folder, datasets, specs, gate):
    """({name of the pod: Pod}, the coordinators' addresses)"""
    certs = folder.file("certs")
    coordinators = [own_address(), own_address()]
    made = {}
    for component in ("coordinator", "server", "worker"):
        run_folder = mount_secret(folder, certs, component)
        for number in range(2):
            own = coordinators[number] if component == "coordinator" else own_address()

            def places(text, own=own, run_folder=run_folder):
                for wanted, place in (("coordinator-0.coordinator:7070", coordinators[0]),
                                      ("coordinator-1.coordinator:7070", coordinators[1]), ("0.0.0.0:9464", "127.0.0.1:0"),
                                      ("STORE", "file://" + folder.file("store")), ("/run/weir", run_folder),
                                      ("/usr/share/datasets", datasets), ("$(POD).coordinator:7070", own),
                                      ("$(POD).server:7071", own), ("$(ADDRESS):7072", own), ("0.0.0.0:7070", own),
                                      ("0.0.0.0:7071", own), ("0.0.0.0:7072", own), ("localhost:7070", own),
                                      ("localhost:7071", own), ("localhost:7072", own)):
                    text = text.replace(wanted, place)
                return text
            pod = made[f"{component}-{number}"] = Pod(specs[component], places, gate)
            pod.start()
    return made, ",".join(coordinators)


def test_pods_are_drained_and_replaced_and_the_run_ends_in_the_same_bits():
    with Folder() as folder, Folder() as data, contextlib.ExitStack() as stack:
        make_secrets(folder)
        data.small_data(240, 12)
        spec = data.small_spec(data.model("mlp", "--hidden", 32), 4, STEPS, STEPS)
        weir("train", spec, "--out", folder.file("alone"), "--threads", 2)
        with open(folder.file("alone/metrics.jsonl")) as lines:
            wanted = json.loads(lines.read().splitlines()[-1])["weights_sha256"]
        gate = Gate(folder)
        gate.stop_at(5)
        made, coordinators = start_pods(folder, data.path, pods(manifests()), gate)
        for pod in made.values():
            stack.callback(lambda pod=pod: pod.process.__exit__())
        at = ("--coordinator", coordinators, "--tls", folder.file("certs/client"))

        def status():
            done = subprocess.run([program("weir"), "status", run, "--json", *at], capture_output=True, text=True, check=False)
            return json.loads(done.stdout) if done.returncode == 0 else {"step": -1, "state": ""}
        wait_for(lambda: subprocess.run([program("weir"), "runs", *at], capture_output=True, check=False).returncode == 0, "a leader")
        for name, pod in made.items():
            wait_for(pod.is_alive, f"{name} to pass its probe")
        run = weir("submit", spec, "checkpoint.every_steps=10", *at).stdout.strip()

        def servers():
            for pod in made.values():
                pod.keep()
            done = subprocess.run([program("weir"), "servers", "--json", *at], capture_output=True, text=True, check=False)
            rows = json.loads(done.stdout) if done.returncode == 0 else []
            return {row["address"] for row in rows if not row["draining"] and not row["message"]}
        for step, name in enumerate(("worker-0", "coordinator-0", "server-1", "worker-1", "coordinator-1", "server-0"), 1):
            wait_for(lambda step=step: status()["step"] >= 5 * step, f"step {5 * step}")
            for pod in made.values():
                pod.keep()
            if name.startswith("server-"):  # its blocks go to the other one, where the coordinator knows that
                wait_for(lambda: len(servers()) == 2, "both servers to have joined the coordinator that leads")
            made[name].end()
            if name.startswith("server-"):  # then they begin no step behind the version at which its blocks leave
                leaves = made[name]
                wait_for(lambda leaves=leaves: leaves.has_ended() or all(knows_a_hold(made[worker].process) for worker in ("worker-0", "worker-1")),
                         "the workers to know")
                gate.crawl(leaves.has_ended, "the server's end", steps=1, factor=1.2)
            made[name].replace()
            gate.stop_at(max(gate.step, 5 * (step + 1)))
        gate.open()
        ended = wait_for(lambda: (now := status())["state"] in ("done", "failed") and now, "the end")
        assert ended["state"] == "done" and ended["weights_sha256"] == wanted, ended
        events = [json.loads(line) for line in weir("logs", run, *at).stdout.splitlines()]
        steps = [event["step"] for event in events if event["event"] == "step"]
        assert steps == list(range(STEPS)), f"a step was computed twice: {steps}"


if __name__ == "__main__":
    main(globals())
