"""A private container engine for tests: it touches nothing outside its folders and ends with the test.

Nothing is pulled: the base image is made with debootstrap, from the mirror that this machine uses, and kept as
build/compose/base.tar. Needs root and Debian's docker.io, docker-compose, iptables and debootstrap."""
import atexit
import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse

from harness import ROOT, Skip, wait_for

CACHE = os.path.join(ROOT, "build", "compose")
BASE = "debian:bookworm-slim"
PROGRAMS = ("dockerd", "docker", "docker-compose", "iptables", "debootstrap")
PR_SET_PDEATHSIG = 1
OFFLINE = ("Could not resolve", "Temporary failure resolving", "Unable to connect")


def skip_unless_possible():
    if os.geteuid() != 0:
        raise Skip("a container engine needs root")
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        raise Skip("not installed: " + ", ".join(missing))
    rules = subprocess.run(["iptables", "-S", "FORWARD"], capture_output=True, text=True).stdout
    if "-P FORWARD DROP" in rules:
        raise Skip("this machine's firewall drops what containers send to each other")


def base_image():
    """Debian's smallest system, as a tar."""
    path = os.path.join(CACHE, "base.tar")
    if os.path.exists(path):
        return path
    mirrors = subprocess.run(["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)"], capture_output=True,
                             text=True).stdout.split("\n")
    mirror = [line.split()[1] for line in mirrors if line.startswith("bookworm ")][:1]
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        root = os.path.join(folder, "root")
        made = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root, *mirror], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if made.returncode != 0:
            raise Skip("debootstrap: " + " ".join(made.stdout.split())[-300:])
        for waste in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(os.path.join(root, waste), ignore_errors=True)
        subprocess.run(["tar", "-C", root, "-cf", os.path.join(folder, "base.tar"), "."], check=True)
        os.rename(os.path.join(folder, "base.tar"), path)
    return path


def skip_if_offline(text):
    if any(sign in text for sign in OFFLINE):
        raise Skip("Debian's mirror cannot be reached")


def remove(folder):
    """An engine's folder, and the one that its `run` leads to, with what is mounted below."""
    for place in (os.path.realpath(os.path.join(folder, "run")), folder):
        with open("/proc/self/mountinfo") as mounts:
            points = [line.split()[4] for line in mounts]
        for point in sorted((point for point in points if point.startswith(place + "/")), reverse=True):
            subprocess.run(["umount", point])
        shutil.rmtree(place, ignore_errors=True)


def end_with_parent():
    """In the child: however the test ends, the engine stops its containers and ends too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Engine:
    """dockerd; its environment, for the clients, is in .environment."""

    def __init__(self):
        skip_unless_possible()
        os.makedirs(CACHE, exist_ok=True)
        self.lock = open(os.path.join(CACHE, "lock"), "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        for name in os.listdir(CACHE):  # of one that was killed: we hold the lock
            if name.startswith("engine-"):
                remove(os.path.join(CACHE, name))
        self.folder = tempfile.mkdtemp(prefix="engine-", dir=CACHE)
        self.run_folder = tempfile.mkdtemp(prefix="weir-engine-")  # short: paths of sockets are limited
        os.symlink(self.run_folder, os.path.join(self.folder, "run"))
        self.daemon = None
        atexit.register(self.stop)
        signal.signal(signal.SIGTERM, lambda *unused: sys.exit(1))  # so that stop() runs
        base = base_image()
        self.start()
        with open(base) as tar:
            self.attempt("import", "--change", 'CMD ["bash"]', "-", BASE, stdin=tar)
        self.attempt("network", "create", "trial")
        self.attempt("run", "--rm", "--network", "trial", BASE, "true")
        self.attempt("network", "rm", "trial")
        self.base_bytes = self.image_bytes(BASE)

    def start(self):
        self.socket = os.path.join(self.run_folder, "sock")
        self.environment = dict(os.environ, DOCKER_HOST="unix://" + self.socket, PATH="/usr/bin:" + os.environ["PATH"],
                                DOCKER_CONFIG=self.run_folder, DOCKER_BUILDKIT="1", COMPOSE_DOCKER_CLI_BUILD="1")
        log = os.path.join(self.run_folder, "log")
        self.daemon = subprocess.Popen(
            ["dockerd", "--data-root", os.path.join(self.folder, "data"),
             "--exec-root", os.path.join(self.run_folder, "exec"), "-p", os.path.join(self.run_folder, "pid"),
             "-H", "unix://" + self.socket, "--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false",
             "--containerd-namespace", "weir-test", "--containerd-plugins-namespace", "weir-test-plugins"],
            stdin=subprocess.DEVNULL, stdout=open(log, "w"), stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=end_with_parent, pass_fds=[self.lock.fileno()])  # locked until it has ended
        wait_for(lambda: self.daemon.poll() is not None or self.client("info").returncode == 0, "the engine")
        if self.daemon.poll() is not None:
            with open(log) as lines:
                raise Skip(f"no container engine runs here: {lines.readlines()[-1].strip()}")

    def attempt(self, *arguments, **options):
        """Nothing of ours: where it fails, the kernel refuses mounts, control groups or networks."""
        done = self.client(*arguments, **options)
        if done.returncode != 0:
            raise Skip(f"no containers run here: {' '.join(done.stderr.split())[-300:]}")

    def client(self, *arguments, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(["docker", *arguments], env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, **options)

    def docker(self, *arguments, **options):
        """stdout of a docker command that must succeed."""
        done = self.client(*arguments, **options)
        assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr[-2000:]}"
        return done.stdout.strip()

    def ask(self, what):
        """What the engine answers to GET: a look by `docker` would cost a process, and one by `docker-compose` an interpreter."""
        link = http.client.HTTPConnection("localhost")
        link.sock = socket.socket(socket.AF_UNIX)
        with contextlib.closing(link):
            link.sock.connect(self.socket)
            link.request("GET", what)
            answer = link.getresponse()
            said = json.load(answer)
        assert answer.status == 200, f"{what}: {said}"
        return said

    def image_bytes(self, name):
        return self.ask(f"/images/{name}/json")["Size"]

    def containers(self, *labels):
        """Those that have these labels, in any state."""
        filters = urllib.parse.quote(json.dumps({"label": labels}))
        return [self.ask(f"/containers/{container['Id']}/json")
                for container in self.ask(f"/containers/json?all=1&filters={filters}")]

    def stop(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait()
        remove(self.folder)
        self.lock.close()
