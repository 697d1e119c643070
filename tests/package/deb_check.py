#!/usr/bin/env python3
"""The Debian package as a machine sees it: a fresh Debian, made by debootstrap and booted by systemd-nspawn with no network but
its own loopback. The package is installed, a run trains on its units and outlives their processes and an upgrade, and
when it is purged nothing is left. `make deb-check` builds the package first."""
import atexit
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from engine import CACHE, base_image, end_with_parent, remove, skip_if_offline
from harness import BUILD, Folder, Skip, main, wait_for

MACHINE = os.path.join(CACHE, "machine.tar")
APT = ("apt-get", "-q", "-y", "--no-install-recommends")
STEPS, HOLD = 40, 15
UNITS = ("weir-coordinator", "weir-server@7071", "weir-worker")
SPEC = f"""name: units
model: {{onnx: mlp.onnx, loss: cross_entropy}}
data:
  root: digits
  train: {{format: idx, images: train-images-idx3, labels: train-labels-idx1}}
  transforms: [{{scale: 0.00392156862745098}}]
train: {{steps: {STEPS}, batch: 48, microbatches: 4, seed: 3, optimizer: {{lr: 0.05, momentum: 0.9}}}}
"""
# What a machine writes by itself, and what every package leaves.
NOISE = ("/dev", "/proc", "/run", "/sys", "/tmp", "/var/log", "/var/tmp", "/var/cache", "/var/lib/apt", "/var/lib/dpkg",
         "/var/lib/systemd", "/etc/ld.so.cache", "/etc/machine-id", "/root", "/home", "/usr/share/mime", "/usr/share/info/dir")


def run(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        skip_if_offline(done.stdout)
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-3000:]}"
    return done.stdout


def machine_image():
    """The smallest Debian, with systemd, as a tar."""
    os.makedirs(CACHE, exist_ok=True)
    if not os.path.exists(MACHINE):
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            root = os.path.join(folder, "root")
            os.mkdir(root)
            run("tar", "-C", root, "-xf", base_image())
            shutil.copy("/etc/resolv.conf", os.path.join(root, "etc", "resolv.conf"))
            run("chroot", root, "apt-get", "-q", "update")
            run("chroot", root, *APT, "install", "systemd", "systemd-sysv", "libpam-systemd-", "adduser")
            run("chroot", root, "apt-get", "clean")
            run("tar", "-C", root, "-cf", MACHINE + ".part", ".")
            os.rename(MACHINE + ".part", MACHINE)
    return MACHINE


def repacked(deb, folder):
    """The same package with a later version."""
    tree = os.path.join(folder, "tree")
    run("dpkg-deb", "--raw-extract", deb, tree)
    with open(os.path.join(tree, "DEBIAN", "control")) as file:
        lines = file.read().splitlines()
    with open(os.path.join(tree, "DEBIAN", "control"), "w") as file:
        file.writelines((line + ".later" if line.startswith("Version: ") else line) + "\n" for line in lines)
    later = os.path.join(folder, "later.deb")
    run("dpkg-deb", "--root-owner-group", "--build", tree, later)
    return later


class Machine:
    """A booted Debian; one for all tests."""
    shared = None

    @classmethod
    def get(cls):
        if cls.shared is None:
            cls.shared = cls()
        if isinstance(cls.shared, Skip):
            raise Skip(cls.shared)
        return cls.shared

    def __init__(self):
        if os.geteuid() != 0:
            raise Skip("only root can boot a machine")
        debs = glob.glob(os.path.join(BUILD, "weir_*.deb"))
        assert len(debs) == 1, f"{debs}: make deb"
        self.folder = tempfile.mkdtemp(prefix="weir-machine-", dir=BUILD)
        self.root, self.systemd, self.name = os.path.join(self.folder, "root"), None, f"weir-{os.getpid()}"
        atexit.register(self.halt)
        os.mkdir(self.root)
        run("tar", "-C", self.root, "-xf", machine_image())
        os.mkdir(os.path.join(self.root, "srv", "deb"))
        shutil.copy(debs[0], os.path.join(self.root, "srv", "deb", "weir.deb"))
        shutil.copy(repacked(debs[0], self.folder), os.path.join(self.root, "srv", "deb", "later.deb"))
        shutil.copy("/etc/resolv.conf", os.path.join(self.root, "etc", "resolv.conf"))
        # What it needs of Debian is brought along: the machine itself reaches nobody.
        run("chroot", self.root, "apt-get", "-q", "update")
        run("chroot", self.root, *APT, "install", "--download-only", "/srv/deb/weir.deb")
        self.boot()

    def boot(self):
        log = open(os.path.join(self.folder, "console"), "w")
        self.systemd = subprocess.Popen(["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--machine",
                                         self.name, "-D", self.root, "--boot"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                        start_new_session=True, preexec_fn=end_with_parent)
        try:
            wait_for(self.is_up, "systemd")
        except AssertionError:
            with open(log.name) as lines:
                Machine.shared = Skip("no machine boots here: " + " ".join(lines.read().split())[-300:])
            raise Machine.shared from None

    def is_up(self):
        assert self.systemd.poll() is None
        return self.init() and self.enter("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded")

    def init(self):
        """Its first process, as this machine numbers it."""
        pid = self.systemd.pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            for child in children.read().split():
                with open(f"/proc/{child}/status") as status:
                    if any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in status):
                        return child
        return None

    def enter(self, *command, user="root", check=True, folder="/"):
        """Runs it inside."""
        inside = ["env", "-i", "-C", folder, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "HOME=/root"]
        inside += ["runuser", "-u", user, "--"] if user != "root" else []
        done = subprocess.run(["nsenter", "-t", self.init(), "-a", *inside, *command], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert not check or done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-3000:]}{self.journal()}"
        return done

    def journal(self):
        done = subprocess.run(["journalctl", "-D", os.path.join(self.root, "var/log/journal"), "-n", "30", "--no-pager"],
                              capture_output=True, text=True, check=False)
        inside = subprocess.run(["nsenter", "-t", self.init(), "-a", "journalctl", "-n", "40", "--no-pager"], capture_output=True,
                                text=True, check=False)
        return inside.stdout or done.stdout

    def says(self, *command, **options):
        return self.enter(*command, **options).stdout.strip()

    def show(self, unit, name):
        return self.says("systemctl", "show", "--value", "-p", name, unit)

    def files(self):
        found = set()
        for place, folders, names in os.walk(self.root):
            inside = place[len(self.root):] or "/"
            folders[:] = [name for name in folders if os.path.join(inside, name) not in NOISE]
            found.update(os.path.join(inside, name) for name in folders + names if os.path.join(inside, name) not in NOISE)
        return found

    def users(self):
        with open(os.path.join(self.root, "etc", "passwd")) as users, open(os.path.join(self.root, "etc", "group")) as groups:
            return sorted(line.split(":")[0] for line in users), sorted(line.split(":")[0] for line in groups)

    def status(self, name):
        return json.loads(self.says("weir", "status", name, "--json", user="ann"))

    def becomes(self, name, state):
        """Waits for it; the run's status then."""
        seen = {}
        try:
            return wait_for(lambda: seen.update(now=self.status(name)) or seen["now"]["state"] == state and seen["now"], state)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{seen}\n{self.journal()}") from late

    def halt(self):
        if self.systemd and self.systemd.poll() is None:
            self.systemd.terminate()
            self.systemd.wait()
        remove(self.folder)
        shutil.rmtree(os.path.join("/run/systemd/nspawn/propagate", self.name), ignore_errors=True)


def test_the_worker_finds_the_backend_of_the_package_for_gpus():
    """As far as there is no GPU: what is missing then is the driver."""
    own, others = (glob.glob(os.path.join(BUILD, name + "_*.deb")) for name in ("weir", "weir-cuda"))
    if not others or os.path.exists("/dev/nvidiactl"):
        raise Skip("no nvcc made a package weir-cuda, or there is a GPU")
    with Folder() as folder:
        for packages, says in ((own, "there is no weir-cuda.so beside this program"), (others, "there is no NVIDIA driver on this machine")):
            run("dpkg-deb", "-x", *packages, folder.path)
            done = subprocess.run([folder.file("usr/bin/weir-worker"), "--device", "cuda", "--data-root", folder.path], capture_output=True,
                                  text=True, check=False)
            assert done.returncode == 2 and says in done.stderr, done


def test_it_is_installed_and_starts_nothing():
    machine = Machine.get()
    machine.enter("useradd", "--create-home", "ann")
    # What it depends on stays when it goes, so that only what is its own is compared.
    depends = machine.says("dpkg-deb", "-f", "/srv/deb/weir.deb", "Depends")
    machine.enter(*APT, "install", *(part.split()[0] for part in depends.split(",")))
    machine.before = machine.files(), machine.users()
    machine.enter(*APT, "install", "/srv/deb/weir.deb")
    assert machine.says("dpkg-query", "-W", "-f", "${Status}", "weir") == "install ok installed"
    assert machine.says("stat", "-c", "%U:%G %a", "/var/lib/weir", "/etc/weir/tls").split("\n") == ["weir:weir 750", "root:weir 750"]
    for unit in UNITS:
        assert machine.enter("systemctl", "is-active", unit, check=False).stdout.strip() == "inactive", unit
        assert machine.enter("systemctl", "is-enabled", unit, check=False).stdout.strip() == "disabled", unit
    for unit in ("weir-coordinator.service", "weir-server@7071.service", "weir-worker.service"):
        assert not machine.says("systemd-analyze", "verify", "--man=no", unit), unit
        machine.enter("systemd-analyze", "security", "--threshold=35", unit)
    for name in ("weir", "weir-server", "weir-worker"):
        assert "weir" in machine.says(name, "--version", user="ann")


def write_data(machine):
    with Folder() as folder:
        folder.small_data(96, 12)
        digits = os.path.join(machine.root, "var/lib/weir/data/digits")
        os.mkdir(digits)
        for name in os.listdir(folder.path):
            shutil.copy(folder.file(name), digits)
    with open(os.path.join(machine.root, "home/ann/spec.yaml"), "w") as file:
        file.write(SPEC)
    os.chmod(file.name, 0o644)
    machine.enter("chown", "-R", "ann:ann", "/home/ann")
    machine.enter("weir", "model", "mlp", "--input", "28,28", "--hidden", "8", "-o", "mlp.onnx", user="ann", folder="/home/ann")


def test_a_run_on_its_units_outlives_their_processes_and_an_upgrade():
    machine = Machine.get()
    write_data(machine)
    # By itself, as a user of the machine, with a data root of hers.
    machine.enter("cp", "-r", "/var/lib/weir/data/digits", "/home/ann")
    machine.enter("chown", "-R", "ann:ann", "/home/ann")
    machine.enter("weir", "train", "spec.yaml", "--data-root", "/home/ann", "--out", "out", "--threads", "1", user="ann",
                  folder="/home/ann")
    with open(os.path.join(machine.root, "home/ann/out/metrics.jsonl")) as lines:
        wanted = json.loads(lines.read().splitlines()[-1])["weights_sha256"]
    machine.enter("systemctl", "enable", "--now", *UNITS)
    for unit in UNITS:
        assert machine.show(unit, "ActiveState") == "active", machine.journal()
    wait_for(lambda: machine.enter("weir", "health", user="ann", check=False).returncode == 0, "the coordinator")
    name = machine.says("weir", "submit", "spec.yaml", f"train.hold={HOLD}", user="ann", folder="/home/ann")
    machine.becomes(name, "held")
    for unit in UNITS:
        with open(f"/proc/{host_pid(machine, unit)}/status") as lines:
            fields = dict(line.rstrip("\n").split(":", 1) for line in lines)
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0 and fields["NoNewPrivs"].strip() == "1", unit
        assert fields["Uid"].split()[0] == machine.says("id", "-u", "weir"), unit
    for unit in UNITS:
        restarted(machine, unit, lambda unit=unit: machine.enter("systemctl", "kill", "-s", "KILL", unit))
    pids = {unit: machine.show(unit, "MainPID") for unit in UNITS}
    machine.enter(*APT, "install", "/srv/deb/later.deb")
    assert machine.says("dpkg-query", "-W", "-f", "${Version}", "weir").endswith(".later")
    for unit in UNITS:
        wait_for(lambda unit=unit: machine.show(unit, "ActiveState") == "active" and machine.show(unit, "MainPID") != pids[unit],
                 f"{unit} to be of the new version")
    assert machine.enter("systemctl", "is-active", "weir-server@7072", check=False).stdout.strip() == "inactive"
    wait_for(lambda: machine.enter("weir", "set", name, "train.hold=null", user="ann", check=False).returncode == 0, "the coordinator")
    status = machine.becomes(name, "done")
    assert status["weights_sha256"] == wanted, status


def host_pid(machine, unit):
    """The unit's process, as this machine numbers it."""
    wanted = machine.show(unit, "MainPID")
    with open(f"/proc/{machine.init()}/task/{machine.init()}/children") as children:
        for child in children.read().split():
            with open(f"/proc/{child}/status") as status:
                if any(line.startswith("NSpid:") and line.split()[-1] == wanted for line in status):
                    return child
    raise AssertionError(f"{unit} has no process {wanted}")


def restarted(machine, unit, kill):
    before = machine.show(unit, "MainPID")
    kill()
    wait_for(lambda: machine.show(unit, "ActiveState") == "active" and machine.show(unit, "MainPID") not in (before, "0"),
             f"{unit} to be started again")


def test_when_it_is_removed_its_units_stop_and_what_it_keeps_stays():
    machine = Machine.get()
    machine.enter(*APT, "remove", "weir")
    assert not machine.says("systemctl", "list-units", "--no-legend", "--state=active", "weir*")
    left = machine.files() - machine.before[0]
    assert "/var/lib/weir/store" in left and "/etc/default/weir" in left
    assert not any(path.startswith(("/usr", "/lib")) for path in left), left


def test_when_it_is_purged_nothing_is_left():
    machine = Machine.get()
    machine.enter(*APT, "purge", "weir")
    files, users = machine.before
    assert machine.files() == files, (machine.files() - files, files - machine.files())
    assert machine.users() == users, machine.users()


if __name__ == "__main__":
    main(globals())
