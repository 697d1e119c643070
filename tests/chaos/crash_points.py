"""Kills the processes of a cluster at every step of writing, committing and deleting checkpoints, starts them again,
and looks: the last committed checkpoint is whole, the run ends in the weights of an undisturbed one, nothing is left
over.

usage: crash_points.py [--store file|redis] [--points N] [--power] [SEED]

A point is the Nth call of its kind (crash_point.c counts them), drawn by seed out of those of an undisturbed run:
  kill    SIGKILL of the coordinator or a server
  power   of the machine that coordinator and servers share: what was not synced is lost, by seed (file store)
  redis   SIGKILL of the redis-server as it writes its log, which is all that is left to it
  redis-power, redis-power-everysec
          a power cut of its machine; with appendfsync everysec it forgets up to two seconds of what it had answered
The seed fixes the steps that are drawn; what a process does at its Nth step depends on the machine. One line for each
kind: points, time, what was hit and lost. Exit status 1 if one failed; what its processes said is kept then."""
import argparse
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from harness import BUILD, PATIENCE, Folder, Process, Skip, kept, own_address, program, start_announced, wait_for, weir
from power_loss import lose_power
from redis_servers import Redis, encode, need

SHIM = os.path.join(BUILD, "tests", "chaos", "crash_point.so")
# Of each store: the kinds, and their shares of the points.
KINDS = {"file": {"kill": 1, "power": 1}, "redis": {"kill": 5, "redis": 2, "redis-power": 2, "redis-power-everysec": 1}}
CALLS = ("create", "write", "sync", "sync_all", "rename", "unlink", "mkdir", "send", "any")  # as crash_point.c has them
ANY = CALLS.index("any")
NEVER = (ANY, 0)  # where not to crash
AT_ONCE = 3             # points side by side
SPEC = """name: crash
model: {{onnx: mlp.onnx, loss: cross_entropy}}
data:
  root: {root}
  train: {{format: idx, images: train-images-idx3, labels: train-labels-idx1}}
  transforms: [{{scale: 0.00392156862745098}}]
train:
  steps: 27
  batch: 16
  microbatches: 2
  seed: 3
  optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
checkpoint: {{every_steps: 5, keep: 2}}
"""
KEEP = 2


class Shim:
    """The state that the preloaded library shares with us. at: the step to die at among those of that call."""

    LAYOUT = struct.Struct(f"={len(CALLS)}QII12s")

    def __init__(self, folder, at, below="", port=0, has_power=False, call=ANY, is_armed=True):
        self.path = folder.file("shim")
        self.at, self.below, self.has_power, self.call = at, below, has_power, call
        os.makedirs(os.path.join(self.path, "inodes"))
        with open(os.path.join(self.path, "count"), "wb") as file:
            file.write(self.LAYOUT.pack(*[0] * len(CALLS), is_armed, 0, b""))
        self.variables = {"LD_PRELOAD": SHIM, "WEIR_CRASH_STATE": self.path, "WEIR_CRASH_AT": f"{call} {at}",
                          "WEIR_CRASH_FOLDER": below, "WEIR_CRASH_PORT": str(port),
                          "ASAN_OPTIONS": "verify_asan_link_order=0", **({"WEIR_CRASH_POWER": "1"} if has_power else {})}
        self.command = ["env", *(f"{name}={value}" for name, value in self.variables.items())]

    def adopt(self):
        """Takes the files that are there for durable."""
        with open(os.path.join(self.path, "journal"), "w") as journal:
            for folder, inner, names in os.walk(self.below):
                journal.writelines(f"mkdir {os.path.join(folder, name)}\n" for name in inner)
                for path in (os.path.join(folder, name) for name in names):
                    status = os.stat(path)
                    os.link(path, os.path.join(self.path, "inodes", str(status.st_ino)))
                    journal.write(f"create {status.st_ino} {path}\nwrite {status.st_ino} {status.st_size}\n")
            journal.write("sync_all\n")

    def arm(self):
        with open(os.path.join(self.path, "count"), "r+b") as file:
            file.seek(8 * len(CALLS))
            file.write(struct.pack("=I", 1))

    def read(self):
        """(steps by call since it was armed, is dead, where)"""
        with open(os.path.join(self.path, "count"), "rb") as file:
            *steps, _, is_dead, phase = self.LAYOUT.unpack(file.read(self.LAYOUT.size))
        return steps, is_dead != 0, phase.split(b"\0")[0].decode()

    @property
    def steps(self):
        return self.read()[0][ANY]

    @property
    def steps_by_call(self):
        return self.read()[0][:ANY]

    @property
    def is_dead(self):
        return self.read()[1]

    @property
    def died_at(self):
        return f"{self.read()[2]} {CALLS[self.call]}"


class CrashingRedis(Redis):
    """A redis-server that keeps a log, counts its writes to the log, and dies at one of them."""

    def __init__(self, folder, kind, at):
        self.folder, self.kind, self.at, self.shim = folder, kind, at, None
        super().__init__(folder, appendonly="yes", auto_aof_rewrite_percentage=0,
                         appendfsync="everysec" if kind.endswith("everysec") else "always")
        if kind != "kill":
            self.stop()
            self.shim = Shim(folder, at[1], os.path.join(self.path, "appendonlydir"), has_power="power" in kind,
                             call=at[0], is_armed=False)
            self.shim.adopt()
            self.start(self.shim.command)

    def stop(self):
        self.process.send(signal.SIGTERM)
        self.process.wait()

    def raw(self, key):
        """A value that is not text."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(PATIENCE)
            link.connect(self.socket_path)
            link.sendall(encode(("GET", key)))
            with link.makefile("rb") as file:
                return file.read(int(file.readline()[1:]))

    def start(self, before=()):
        self.process = Process(*before, "redis-server", self.config)
        wait_for(self.answers, f"a redis at {self.port}")


class Site:
    """A coordinator, two servers and a worker on a store; one crash awaits them, or none (at NEVER)."""

    ROLES = ("coordinator", "server-0", "server-1")

    def __init__(self, inputs, store, kind, victim, at):
        self.kind, self.victim, self.folder, self.inputs = kind, victim, Folder().__enter__(), inputs
        self.redis = self.worker = self.follower = None
        self.has_recovered, self.lost = False, Counter()
        self.path, self.processes, self.addresses, self.old_logs = "", {}, {}, []
        try:
            self.make_store(store, at)
            for role in self.ROLES:
                self.start(role, self.shim.command if kind == "power" or role == victim else ())
            self.worker = Process(program("weir-worker"), "--coordinator", self.addresses["coordinator"],
                                  "--threads", 2)
            self.run = self.submit()
        except BaseException:
            self.__exit__()
            raise

    def make_store(self, store, at):
        if store == "file":
            self.path = self.folder.file("store")
            self.url = "file://" + self.path
            self.shim = Shim(self.folder, at[1], self.path, has_power=self.kind == "power", call=at[0],
                             is_armed=False)
            return
        self.redis = CrashingRedis(self.folder, self.kind, at)
        self.shim = self.redis.shim or Shim(self.folder, at[1], port=self.redis.port, call=at[0], is_armed=False)
        self.url = f"redis://{self.redis.address}"

    def start(self, role, before=()):
        listen = self.addresses.get(role) or own_address()
        command = [*before, program("weir-server"), "--store", self.url, "--listen", listen]
        if role == "coordinator":
            command.append("--role=coordinator")
        else:
            command += ["--role=parameters", "--coordinator", self.addresses["coordinator"]]
        if role in self.processes:
            self.old_logs.append((role, self.processes[role].output()))
            self.processes[role].__exit__()
        self.processes[role], self.addresses[role] = start_announced(*command)

    def client(self, *arguments):
        return weir(*arguments, "--coordinator", self.addresses["coordinator"]).stdout

    def submit(self):
        """The crash may come meanwhile: what was answered must be there afterwards, what was not may be."""
        self.shim.arm()
        done = self.try_client("submit", self.inputs.spec)
        if done.returncode == 0:
            return done.stdout.strip()
        assert self.is_hit(), f"submit: {done.stderr}"
        self.recover(None)
        self.has_recovered = True
        found = json.loads(self.client("runs", "--json"))
        if found:
            return found[0]["run"]
        wait_for(lambda: self.try_client("submit", self.inputs.spec).returncode == 0, "a submission that is taken")
        return json.loads(self.client("runs", "--json"))[0]["run"]

    def try_client(self, *arguments):
        return subprocess.run([program("weir"), *arguments, "--coordinator", self.addresses["coordinator"]],
                              capture_output=True, text=True, timeout=PATIENCE)

    def is_hit(self):
        return self.shim.is_dead

    # ---- after the crash ----

    def await_crash(self):
        """Whether it came before the run's end; the client that follows the run stays."""
        self.follow()
        wait_for(lambda: self.is_hit() or self.follower.child.poll() is not None, "the crash")
        return self.is_hit()

    def follow(self):
        if self.follower:
            self.follower.__exit__()
        self.follower = Process(program("weir"), "watch", self.run, "--coordinator", self.addresses["coordinator"])

    def recover(self, run):
        """Waits for the dead, has the disk lose what it may, looks at the store, starts the dead again."""
        dead = list(self.ROLES) if self.kind == "power" else [self.victim] if self.kind == "kill" else []
        if self.kind == "power":
            for role in dead:
                self.processes[role].send(signal.SIGKILL)
        for role in dead:
            assert self.processes[role].wait() == -signal.SIGKILL, f"{role} was not killed"
        living = [self.processes[role] for role in self.ROLES if role not in dead]
        for process in living:  # nobody deletes what is being looked at
            process.send(signal.SIGSTOP)
        if self.redis and self.redis.shim:
            assert self.redis.process.wait() == -signal.SIGKILL, "redis-server was not killed"
        if self.shim.has_power:
            chooser = random.Random(f"{self.kind} {self.shim.call} {self.shim.at}")
            self.lost = lose_power(self.shim.below, self.shim.path, chooser, may_garble=self.kind == "power")
        if self.redis and self.redis.shim:
            self.redis.start()
        if run:
            self.check_store(run, self.kind != "redis-power-everysec")
        for process in living:
            process.send(signal.SIGCONT)
        for role in dead:
            self.start(role)

    def check_store(self, run, is_complete):
        """Every committed checkpoint is whole, and those that were committed are there."""
        if not is_complete and not any(run == found["run"] for found in self.stored_runs()):
            return  # forgotten; the coordinator will say it again
        listed = weir("checkpoints", run, "--store", self.url, "--json")
        steps = [checkpoint["step"] for checkpoint in json.loads(listed.stdout)]
        if steps:
            weir("verify", run, "--store", self.url)
        logs = "".join(self.logs("coordinator"))
        dropped = [int(step) for step in re.findall(r"checkpoint_dropped run=\S+ step=(\d+)", logs)]
        newer = [step for step in steps if step > max(dropped, default=0)]
        assert not is_complete or not dropped or len(newer) >= KEEP, (
            f"{max(dropped)} was dropped for newer checkpoints, but these are left: {steps}")

    def stored_runs(self):
        return json.loads(weir("runs", "--store", self.url, "--json").stdout)

    def finish(self):
        """The run ends as the undisturbed one did, and nothing is left over. Returns its weights_sha256. A store that forgets
        what it has answered may have lost checkpoints, even all of them, after the run had ended: nobody writes them
        again then."""
        wait_for(self.has_ended, "the run's end")
        status = json.loads(self.client("status", self.run, "--json"))
        assert status["state"] == "done", status
        # a Redis that has just come back may not have been tried again yet
        wait_for(lambda: self.try_client("gc").returncode == 0, "weir gc")
        keys, records = self.contents()
        known = set(re.findall(rb"[0-9a-f]{64}", b"\n".join(records)))
        assert not keys - known, f"{len(keys - known)} of {len(keys)} blocks are left over after gc"
        assert keys or self.kind == "redis-power-everysec", "no block of the last checkpoint is there"
        if self.kind == "redis-power-everysec":
            self.check_store(self.run, is_complete=False)
        else:
            self.client("verify", self.run)
        for role, process in self.processes.items():
            assert process.child.poll() is None, f"{role} ended with {process.child.poll()}"
        return status["weights_sha256"]

    def has_ended(self):
        """A client that finds nobody to follow at gives up: it is started again."""
        status = self.follower.child.poll() if self.follower else 3
        assert status in (None, 0, 3), f"weir watch ended with {status}:\n{self.follower.output()[-1500:]}"
        if status == 3:
            self.follow()
        return status == 0

    def contents(self):
        """Keys of the blocks; contents of the records."""
        if self.redis:
            names = self.redis.local("KEYS", "*:b:*")
            records = [self.redis.raw(name) for name in self.redis.local("KEYS", "*:r:*")]
            return {name.rsplit(":", 1)[1].encode() for name in names}, records
        keys, records = set(), []
        for top, _, names in os.walk(self.path):
            if os.path.dirname(top) == os.path.join(self.path, "blocks"):
                keys.update((os.path.basename(top) + name).encode() for name in names)
            elif top.startswith(os.path.join(self.path, "records")):
                for name in names:
                    with open(os.path.join(top, name), "rb") as file:
                        records.append(file.read())
        return keys, records

    def logs(self, role):
        return [text for old, text in self.old_logs if old == role] + [self.processes[role].output()]

    def keep_logs(self, name):
        folder = os.path.join(BUILD, "crash-points", name)
        os.makedirs(folder, exist_ok=True)
        texts = {role: "".join(self.logs(role)) for role in self.processes}
        texts["worker"] = self.worker.output() if self.worker else ""
        texts["follower"] = self.follower.output() if self.follower else ""
        texts["redis"] = self.redis.process.output() if self.redis else ""
        for role, text in texts.items():
            with open(os.path.join(folder, role + ".log"), "w") as file:
                file.write(text)
        return folder

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in [self.follower, self.worker, *self.processes.values(), self.redis]:
            if process:
                process.__exit__()
        self.folder.__exit__()


class Inputs:
    """What all runs share: a spec with its model and data, and how an undisturbed run went on each kind of crash."""

    def __init__(self, folder, store):
        self.store = store
        folder.small_data(160, 16)
        weir("model", "mlp", "--hidden", "90,20", "--seed", "3", "-o", folder.file("mlp.onnx"))
        self.spec = folder.file("spec.yaml", SPEC.format(root=folder.path))
        self.reference = None

    def ranges_of(self, kind, victim):
        """The calls that the victim makes between the run's submission and its end: (call, how many)."""
        def count():
            with Site(self, self.store, kind, victim, NEVER) as site:
                assert not site.await_crash()
                steps = site.shim.steps_by_call
                return site.finish(), [(call, last) for call, last in enumerate(steps) if last]
        weights, ranges = kept(f"crash-{self.store}-{kind}-{victim}", count)
        assert self.reference in (None, weights), "undisturbed runs differ"
        self.reference = weights
        return ranges


def try_point(inputs, kind, victim, at, name):
    """None if the run had ended before the step came; else who was hit, at which call, and what was lost."""
    with Site(inputs, inputs.store, kind, victim, at) as site:
        try:
            if not site.has_recovered and not site.await_crash():
                return None
            if not site.has_recovered:
                site.recover(site.run)
            weights = site.finish()
            assert weights == inputs.reference, f"the weights differ: {weights}, undisturbed {inputs.reference}"
        except Exception as why:
            raise AssertionError(f"{name}: {why}\nits logs: {site.keep_logs(name)}") from why
        return victim or kind, site.shim.died_at, site.lost


def run_point(inputs, kind, seed):
    """What try_point says; a step that did not come is drawn again, earlier."""
    chooser = random.Random(f"{kind} {seed}")
    victim = chooser.choice(Site.ROLES) if kind == "kill" else None
    call, last = chooser.choice(inputs.ranges_of(kind, victim))
    while True:
        at = chooser.randint(1, last)
        found = try_point(inputs, kind, victim, (call, at), f"{inputs.store}-{kind}-{seed}")
        if found:
            return found
        last = max(1, at - 1)


def run_batch(inputs, kind, points, seed, say):
    """Says one line, and one for each failure; whether all went well."""
    began, hit, calls, lost, failures = time.monotonic(), Counter(), Counter(), Counter(), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # the undisturbed runs first, one by one
        for victim in Site.ROLES if kind == "kill" else [None]:
            inputs.ranges_of(kind, victim)
        for future in [pool.submit(run_point, inputs, kind, f"{seed}.{number}") for number in range(points)]:
            try:
                who, call, what = future.result()
                hit[who] += 1
                calls[call] += 1
                lost += what
            except Exception as why:
                failures.append(str(why))
    words = [f"{count} x {what}" for what, count in sorted(hit.items())]
    words += [f"{count} {call}" for call, count in calls.most_common()]
    words += [f"lost {count} {what}" for what, count in sorted(lost.items())]
    say(f"{'FAIL' if failures else 'ok  '} {inputs.store} {kind}: {sum(hit.values())} of {points} points "
        f"({time.monotonic() - began:.1f} s): {', '.join(words)}")
    for line in "\n".join(failures).splitlines():
        say("     " + line)
    return not failures


def run_points(store, points, seed, say):
    """points: how many of each kind. Whether all went well; say is told what happened, line by line."""
    if store == "redis":
        need("redis-server")
    with Folder() as folder:
        inputs = Inputs(folder, store)
        return all([run_batch(inputs, kind, count, seed, say) for kind, count in points.items()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=KINDS, default=None)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("seed", nargs="?", default="1")
    options = parser.parse_args()
    is_well = True
    for store in [options.store] if options.store else KINDS:
        shares = {kind: share for kind, share in KINDS[store].items() if not options.power or "power" in kind}
        points = {kind: -(-options.points * share // sum(shares.values())) for kind, share in shares.items()}
        try:
            is_well &= run_points(store, points, options.seed, lambda line: print(line, flush=True))
        except Skip as reason:
            print(f"skipped {store}: {reason}", flush=True)
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
