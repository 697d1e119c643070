#!/usr/bin/env python3
"""docker/compose.yaml as users run it, in a private engine: images, commands, and a run whose containers are
scaled and killed, which must end in the bits of an undisturbed one."""
import atexit
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import scraping
from engine import Engine, skip_if_offline
from formats import CHANNELS, PIXELS, SIDE, png
from gate import Gate
from harness import BUILD, KEPT, PATIENCE, ROOT, Skip, main, program, reserve_port, wait_for
from test_tls import PREFACE

IMAGES = ("weir", "weir-redis", "weir-data")
IMAGE_BYTES_MAX = 100_000_000  # above the base
STEPS = 300
HTTP = 9464  # the port of /metrics
STEPS_WHILE_KILLED = 40  # at most: then the run stands still until it is looked at
STEPS_WHILE_FOLLOWED = 20  # it stands there until it is cancelled
SPEC = f"""name: compose
model: {{onnx: /examples/fashion-mnist.onnx, loss: cross_entropy}}
data:
  root: /usr/share/datasets/fashion-mnist
  train: {{format: idx, images: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz}}
  transforms: [{{scale: 0.00392156862745098}}]
train:
  steps: {STEPS}
  batch: 64
  microbatches: 8
  seed: 5
  optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
checkpoint: {{every_steps: 20, keep: 2}}
"""
# What only the test needs: images are built over the host's network; the name of a stopped container is looked
# up in vain for 20 seconds where forwarding is off, which nobody's own engine is; workers have the gate.
EXTRA = """
x-member: &member {{dns_opt: ["timeout:1", "attempts:1"]}}
services:
  certs: {{build: {{network: host}}}}
  redis: {{build: {{network: host}}}}
  data: {{build: {{network: host}}}}
  coordinator: *member
  standby: *member
  server: *member
  worker: {{<<: *member, volumes: ["{folder}:/gate:ro"], environment: {{LD_PRELOAD: {library}, WEIR_GATE: {gate}}}}}
  client: {{<<: *member, volumes: ["{folder}:/spec"]}}
"""


class Compose:
    """The project, built and up; torn down when the test ends, however it ends."""
    shared = None

    @classmethod
    def get(cls):
        """The same one for all tests. Raises Skip, each time, where there can be none."""
        if isinstance(cls.shared, str):
            raise AssertionError(cls.shared)
        if isinstance(cls.shared, Skip):
            raise Skip(cls.shared)
        if cls.shared is None:
            cls.shared = "there is no cluster: the first test says why"
            try:
                cls.shared = cls()
            except Skip as reason:
                cls.shared = reason
                raise
        return cls.shared

    def __init__(self):
        if "san-" in BUILD:
            raise Skip("images are made of the plain build")
        self.engine = Engine()
        self.folder = tempfile.mkdtemp(dir=self.engine.run_folder)
        os.chmod(self.folder, 0o777)  # containers write there as nobody of this machine
        self.ports = [reserve_port() for _ in range(3)]
        self.address = ",".join(f"127.0.0.1:{port}" for port in self.ports[:2])
        self.environment = dict(self.engine.environment, WEIR_THREADS="1", WEIR_PORT=str(self.ports[0]),
                                WEIR_STANDBY_PORT=str(self.ports[1]), WEIR_UI_PORT=str(self.ports[2]))
        self.file("spec.yaml", SPEC)
        self.gate = Gate(self)
        library, gate = (os.path.join("/gate", os.path.basename(self.gate.variables[name]))
                         for name in ("LD_PRELOAD", "WEIR_GATE"))
        shutil.copy(self.gate.variables["LD_PRELOAD"], self.folder)
        self.extra = self.file("extra.yaml", EXTRA.format(folder=self.folder, library=library, gate=gate))
        atexit.register(self.down)
        self.make_images()
        self.compose("up", "-d")
        self.tls = self.own_certificate()
        try:
            wait_for(lambda: all(map(self.healthy, ("redis", "coordinator", "standby", "server", "worker"))), "health")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.logs()}") from late

    def make_images(self):
        """In the first of several rounds; the others have its images."""
        kept = os.path.join(KEPT, "images.tar") if KEPT else None
        if kept and os.path.exists(kept):
            self.engine.docker("load", "--input", kept)
            return
        built = self.compose("build", check=False)
        skip_if_offline(built.stdout)
        assert built.returncode == 0, f"build: {built.stdout[-4000:]}"
        if kept:
            self.engine.docker("save", "--output", kept + ".part", *IMAGES)
            os.rename(kept + ".part", kept)

    def own_certificate(self):
        """The folder of the client's, as docs/DEPLOYMENT.md says how to get it."""
        packed = subprocess.run(self.command("run", "--rm", "-T", "--no-deps", "--entrypoint", "tar", "client", "-C", "/run/weir",
                                             "-chf", "-", "tls"), env=self.environment, stdin=subprocess.DEVNULL, capture_output=True)
        assert packed.returncode == 0, packed.stderr[-2000:]
        subprocess.run(["tar", "-C", self.folder, "-xf", "-"], input=packed.stdout, check=True)
        return os.path.join(self.folder, "tls")

    def file(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "w" if isinstance(content, str) else "wb") as file:
            file.write(content)
        return path

    def command(self, *arguments):
        return ["docker-compose", "-f", os.path.join(ROOT, "docker", "compose.yaml"), "-f", self.extra, *arguments]

    def compose(self, *arguments, check=True):
        done = subprocess.run(self.command(*arguments), env=self.environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert not check or done.returncode == 0, f"{' '.join(arguments)}: {done.stdout[-3000:]}"
        return done

    def take_down(self):
        """Docker may still count an endpoint of a container that it has removed: then another try removes the network."""
        wait_for(lambda: self.compose("down", check=False).returncode == 0, "everything to be taken down")

    def containers(self, service=None):
        """Of services alone: not what `run` started."""
        return self.engine.containers("com.docker.compose.oneoff=False",
                                      *([f"com.docker.compose.service={service}"] if service else []))

    def healthy(self, service):
        return all(c["State"]["Running"] and c["State"].get("Health", {"Status": "healthy"})["Status"] == "healthy"
                   for c in self.containers(service))

    def kill_from_outside(self, service):
        """SIGKILL by the host: as when memory runs out, unlike `docker kill`, it is followed by a restart."""
        container = wait_for(lambda: next((c for c in self.containers(service) if c["State"]["Pid"] > 0), None), f"{service} to run")
        os.kill(container["State"]["Pid"], signal.SIGKILL)
        looked_at = f"/containers/{container['Id']}/json"
        wait_for(lambda: self.engine.ask(looked_at)["RestartCount"] > container["RestartCount"], f"{service} to be restarted")

    def weir(self, *arguments):
        """JSON of a client command on the host, or None while nobody answers."""
        done = subprocess.run([program("weir"), *arguments, "--json", "--coordinator", self.address, "--tls", self.tls],
                              capture_output=True, text=True, timeout=PATIENCE)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def run(self, *arguments):
        """stdout of `docker compose run --rm client ...`."""
        done = subprocess.run(self.command("run", "--rm", "-T", *arguments), env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True)
        assert done.returncode == 0, f"run {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout.strip()

    def logs(self):
        return self.compose("logs", "--no-color", "--tail", "6", check=False).stdout[-6000:]

    def down(self):
        self.compose("down", "-v", "-t", "1", "--remove-orphans", check=False)


class Reference(threading.Thread):
    """The same spec by `weir train` in a container of the same image, without a network, undisturbed."""

    def __init__(self, compose):
        super().__init__(daemon=True)
        self.compose, self.output = compose, ""
        self.start()

    def run(self):
        self.output = self.compose.engine.client(
            "run", "--rm", "--network", "none", "-v", "weir_datasets:/usr/share/datasets:ro", "-v",
            f"{self.compose.folder}:/spec:ro", "weir", "weir", "train", "/spec/spec.yaml", "--workers", "1", "--threads",
            "2", "--out", "/tmp/out").stdout

    def weights(self):
        self.join(PATIENCE)
        found = re.search(r"^sha256 +([0-9a-f]{64})$", self.output, re.MULTILINE)
        assert found, f"weir train in a container: {self.output[-2000:]}"
        return found.group(1)


class Run:
    """A submitted run, seen from the host."""

    def __init__(self, compose):
        self.compose = compose
        self.id = compose.run("client", "submit", "/spec/spec.yaml").split()[-1]

    def status(self):
        """None while nobody answers."""
        return self.compose.weir("status", self.id)

    def ended(self):
        status = self.status()
        return status if status and status["state"] in ("done", "failed") else None

    def wait_for_steps(self, more, what):
        """Steps after those done by now, or by the end of a roll-back; there the run stands still."""
        target = None

        def reached():
            nonlocal target
            status = self.status()
            if not status:
                return False
            step, incarnation = int(status["step"]), int(status["incarnation"])
            assert status["state"] not in ("failed", "done"), f"it is over {what}"
            if not target or target[1] != incarnation:
                target = step + more, incarnation
                self.compose.gate.stop_at(target[0])
            return step >= target[0]
        try:
            wait_for(reached, f"{more} steps {what}")
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.status()}\n{self.compose.logs()}") from None


def note(text):
    print(f"# {time.monotonic() - BEGAN:.0f} s: {text}", flush=True)


BEGAN = time.monotonic()


def test_the_image_adds_at_most_100_mb_to_its_base():
    compose = Compose.get()
    added = compose.engine.image_bytes("weir") - compose.engine.base_bytes
    note(f"images are built and up; weir adds {added / 1e6:.1f} MB to {compose.engine.base_bytes / 1e6:.1f} MB")
    assert added <= IMAGE_BYTES_MAX, added


def test_containers_have_no_rights_to_spare():
    compose = Compose.get()
    passwords = [compose.engine.docker("exec", compose.containers(service)[0]["Id"], "cat", "/run/weir/store-password")
                 for service in ("coordinator", "server")]
    assert [len(password) for password in passwords] == [64, 64] and passwords[0] != passwords[1]
    for container in compose.containers():
        host, name = container["HostConfig"], container["Name"]
        assert container["Config"]["User"] == "10001:10001", name
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"], name
        assert "no-new-privileges:true" in host["SecurityOpt"], name
        assert host["Memory"] >= 1 << 30, name
        assert not any(password in json.dumps(container) for password in passwords), name
    coordinator = compose.containers("coordinator")[0]["Id"]
    assert compose.engine.client("exec", coordinator, "touch", "/examples/x").returncode != 0
    compose.engine.docker("exec", coordinator, "touch", "/tmp/x")


def test_each_container_has_the_secrets_of_its_role_alone():
    """And nobody has the authority's key."""
    compose = Compose.get()
    wanted = {"redis": {"coordinator.sha256", "server.sha256"}, "coordinator": {"store-password"}, "standby": {"store-password"},
              "server": {"store-password"}, "worker": set()}
    volumes = {"redis": "weir_store", "standby": "weir_coordinator"}
    for service, files in wanted.items():
        for container in compose.containers(service):
            def listed(*arguments, name=container["Id"]):
                return set(compose.engine.docker("exec", name, *arguments).split())
            assert {mount["Name"] for mount in container["Mounts"] if mount["Destination"] == "/run/weir"} == {
                volumes.get(service, "weir_" + service)}, service
            assert not any(mount.get("Name") == "weir_authority" for mount in container["Mounts"]), service
            found = {name for name in listed("ls", "/run/weir") if not re.fullmatch("tls|tls-[0-9a-f-]{36}", name)}
            assert found == files, (service, found)
            assert listed("ls", "/run/weir/tls/") == {"ca.pem", "cert.pem", "key.pem"}, service
            assert not listed("find", "/run", "-name", "ca-key.pem"), service


def test_plaintext_is_refused_on_every_port():
    """And so is a client without a certificate."""
    compose = Compose.get()
    wanted = {"redis": {6379}, "coordinator": {7070, HTTP}, "standby": {7070, HTTP}, "server": {7071, HTTP}, "worker": {7072, HTTP}}
    for service, ports in wanted.items():
        for container in compose.containers(service):
            address = next(iter(container["NetworkSettings"]["Networks"].values()))["IPAddress"]
            found = wait_for(lambda: ports_of(container["State"]["Pid"]), f"the ports of a {service}")
            assert found == ports, (service, found)
            if HTTP in found:
                assert scraping.ask((address, HTTP), tls="")[0] == 403, service
                assert not talk(address, HTTP, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP"), service
            for port in found - {HTTP}:
                for words in (PREFACE, b"PING\r\n" * 8):
                    heard = talk(address, port, words)
                    assert not heard.startswith(b"\0\0") and b"PONG" not in heard and b"NOAUTH" not in heard, (service, port, heard)
                for words in (PREFACE, b"PING\r\n"):
                    assert talk(address, port, words, tls=True) == b"", (service, port, "who has no certificate is heard")
    done = subprocess.run([program("weir"), "runs", "--coordinator", f"127.0.0.1:{compose.ports[0]}"], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 3 and "does one end lack --tls" in done.stderr, done


def test_every_role_tells_metrics_to_who_shows_a_certificate():
    compose = Compose.get()
    for service, metric in (("coordinator", "weir_coordinator_leading"), ("standby", "weir_coordinator_leading"), ("server", "weir_server_runs"),
                            ("worker", "weir_worker_runs")):
        for container in compose.containers(service):
            address = next(iter(container["NetworkSettings"]["Networks"].values()))["IPAddress"]
            assert metric in scraping.scrape((address, HTTP), tls=compose.tls, name="member.weir"), service


def ports_of(pid):
    """Where the network of a process is listened to, but for its loopback."""
    found = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as rows:
            for row in list(rows)[1:]:
                address, port = row.split()[1].split(":")
                if row.split()[3] == "0A" and not (table == "tcp" and address.endswith("7F")):
                    found.add(int(port, 16))
    return found


def talk(address, port, words, tls=False):
    """What is answered until the other end hangs up."""
    heard = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError), \
            socket.create_connection((address, port), timeout=PATIENCE) as plain, contextlib.ExitStack() as stack:
        link = plain
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            link = stack.enter_context(context.wrap_socket(plain))
        link.sendall(words)
        while piece := link.recv(4096):
            heard += piece
    return heard


def test_what_the_containers_know_each_other_by_is_kept():
    """The one-shot service is started again by each `up`: what is good stays, and what is not is replaced."""
    compose = Compose.get()
    show = ("for r in coordinator server worker client store; do sha256sum </run/weir-$r/tls/cert.pem; done; "
            "cat /run/authority/ca/ca.pem /run/weir-server/store-password | sha256sum; ")
    script = f"set -e; {show} weir-certs; {show} rm /run/weir-client/tls/key.pem; weir-certs; {show}"
    output = compose.compose("run", "--rm", "-T", "--entrypoint", "sh", "certs", "-c", script).stdout
    hashes = re.findall("^([0-9a-f]{64})  -\r?$", output, re.MULTILINE)
    assert len(hashes) == 18, output
    first, second, third = hashes[:6], hashes[6:12], hashes[12:]
    assert first == second and [one == other for one, other in zip(first, third)] == [True, True, True, False, True, True], hashes
    compose.run("client", "runs")


def test_a_run_whose_containers_are_scaled_killed_and_stopped_ends_in_the_same_bits():
    compose = Compose.get()
    compose.gate.stop_at(0)
    reference, run = Reference(compose), Run(compose)
    run.wait_for_steps(20, "after the start")
    scale(compose, 4)
    kill(compose, run, "worker")
    kill(compose, run, "server")
    scale(compose, 1)
    kill(compose, run, "redis")
    kill(compose, run, "coordinator")
    kill(compose, run, "standby")
    stop(compose)
    compose.take_down()
    compose.compose("up", "-d")
    run.wait_for_steps(1, "after everything was taken down")
    compose.gate.open()
    status = wait_for(run.ended, "the end")
    note(f"{status['state']} in incarnation {status['incarnation']} {status['message']}")
    assert status["state"] == "done", status
    assert status["weights_sha256"] == reference.weights()
    export(compose, run)


def scale(compose, workers):
    note(f"scaling to {workers} workers")
    compose.compose("up", "-d", "--no-recreate", "--scale", f"worker={workers}")
    wait_for(lambda: len(compose.weir("workers") or []) == workers, f"{workers} workers")


def kill(compose, run, service):
    """While the run goes on."""
    note(f"killing {service}")
    compose.gate.stop_at(compose.gate.step + STEPS_WHILE_KILLED)
    compose.kill_from_outside(service)
    wait_for(lambda: compose.healthy(service), f"{service} to be healthy again")
    run.wait_for_steps(10, f"after {service} was killed")


def stop(compose):
    began = time.monotonic()
    compose.compose("stop")
    took = time.monotonic() - began
    note(f"stopped in {took:.1f} s")
    statuses = {c["Name"]: c["State"]["ExitCode"] for c in compose.containers()}
    assert not any(statuses.values()), (took, statuses)  # one that takes ten seconds is killed, which is its status


def export(compose, run):
    compose.run("--user", "10002", "client", "export", run.id, "-o", "/spec/model.safetensors")
    assert os.path.getsize(os.path.join(compose.folder, "model.safetensors")) > 100_000


def test_submit_follow_shows_progress_as_documented():
    compose = Compose.get()
    compose.gate.stop_at(STEPS_WHILE_FOLLOWED)
    with open(os.path.join(compose.folder, "log"), "w+") as log:
        child = subprocess.Popen(compose.command("run", "--rm", "-T", "client", "submit", "/examples/fashion-mnist.yaml",
                                                 "--follow"), env=compose.environment, stdin=subprocess.DEVNULL,
                                 stdout=log, stderr=log)
        wait_for(lambda: "samples/s" in open(log.name).read(), "a line of progress")
        compose.run("client", "cancel", "fashion-mnist")
        assert child.wait(PATIENCE) == 1, open(log.name).read()[-2000:]
    compose.gate.open()


def test_a_folder_of_images_that_the_user_names_is_trained_on():
    """By one variable, and the spec that `weir init` makes of what it finds there."""
    compose = Compose.get()
    draw, own = random.Random(1), os.path.join(compose.folder, "own")
    for part, label in itertools.product(("train", "val"), ("cat", "dog")):
        os.makedirs(os.path.join(own, part, label))
        for number in range(16):
            compose.file(f"own/{part}/{label}/{number}.png", png(draw.randbytes(PIXELS)))
    compose.environment["WEIR_DATA"] = own
    compose.compose("up", "-d")
    compose.run("client", "model", "lenet", "--input", f"{CHANNELS},{SIDE},{SIDE}", "--classes", "2", "-o", "/spec/own.onnx")
    said = compose.run("client", "init", "/spec/own.onnx", "--data", "/usr/share/datasets")
    assert "{format: images, folder: train}" in said and "fill in" not in said, said
    compose.run("client", "submit", "/spec/own.yaml", "train.batch=16", "train.microbatches=2", "--follow")
    del compose.environment["WEIR_DATA"]


def test_the_dashboard_is_at_a_link_of_the_machine():
    compose = Compose.get()
    with open(os.path.join(compose.folder, "ui"), "w+") as log:
        child = subprocess.Popen(compose.command("run", "--rm", "-T", "ui"), env=compose.environment, stdin=subprocess.DEVNULL,
                                 stdout=log, stderr=subprocess.STDOUT)
        link = wait_for(lambda: re.search(rf"(http://127\.0\.0\.1:{compose.ports[2]}/\S*)\s", open(log.name).read()), "the link").group(1)
        page, session = link.split("#session=")
        with urllib.request.urlopen(page, timeout=PATIENCE) as answer:
            assert answer.headers["Content-Type"].startswith("text/html")
        asked = urllib.request.Request(page + "api/overview", headers={"Weir-Session": session})

        def servers():
            """None where nobody answers it in time."""
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                return json.load(answer)["fleet"]["servers"]
            return None
        wait_for(lambda: servers() == 2, "the servers of the cluster")

        def dashboards():
            """The engine lists a container once its state is on disk, which may be after it has answered."""
            return [name for name in compose.engine.docker("ps", "--format", "{{.Names}}").split() if "_ui_" in name]
        container, = wait_for(dashboards, "the dashboard's container among those that run")
        compose.engine.docker("stop", container)
        child.wait(PATIENCE)


def test_the_worker_on_gpus_is_asked_for_by_its_profile():
    compose = Compose.get()
    assert not any("_worker-gpu_" in container["Name"] for container in compose.containers())
    config = compose.compose("--profile", "gpu", "config").stdout
    gpu = re.search(r"\n  worker-gpu:\n(.*?)\n  \S", config, re.S).group(1)
    assert "driver: nvidia" in gpu and "image: weir-cuda" in gpu and "--device" in gpu and "mem_limit" in gpu, gpu


def test_every_container_stops_in_order_within_ten_seconds():
    stop(Compose.get())


if __name__ == "__main__":
    main(globals())
