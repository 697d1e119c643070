"""What integration tests share: real processes on free ports, conditions instead of sleeps, TAP on stdout.

A test is a function whose name states a behaviour; `main(globals())` runs those that begin with `test_`.
Only the standard library; peers that need more run in the environment that `make check` makes under build/."""
import atexit
import gzip
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("WEIR_BUILD_DIR", "build"))
PEER_PYTHON = os.environ.get("WEIR_PEER_PYTHON", os.path.join(ROOT, "build", "venv", "bin", "python"))
# What the machine has is not what most tests are about; those that are name a device.
DEVICE = os.environ.setdefault("WEIR_DEVICE", "cpu")
os.environ.setdefault("WEIR_DATA_ROOT", "/")  # of workers that tests start themselves
SIMULATED = os.path.join(BUILD, "simulation", "weir-cuda.so")
DATA = "/usr/share/datasets/fashion-mnist"
# Sanitizers and busy machines make everything slower; no test passes because of a time.
PATIENCE = float(os.environ.get("WEIR_TEST_PATIENCE", "240"))
FOLDERS = os.environ.get("WEIR_TEST_FOLDERS")  # where tests have theirs, if not where temporary ones are
KEPT = os.environ.get("WEIR_TEST_KEPT")  # a folder of tests/run.py: what a round leaves there need not be made again
PORTS, BUS = range(10000, 20000), 10000  # where a Redis Cluster's bus is; both below those that the system gives unasked
RESERVED, MADE = {}, {}
UNANSWERED = 3  # the client's exit status where no coordinator answers in time
SETTLED = re.compile(r"\bcoordinator (state_restored|waiting|taking_over|store_trouble|deposed) ")


class Skip(Exception):
    """The machine lacks what this test needs; the text says what."""


def program(name):
    path = os.path.join(BUILD, name)
    assert os.path.exists(path), f"{path} is not built: make all tests"
    return path


def wait_for(condition, what):
    """The first true value of condition(); AssertionError when it does not come. Most of the time is left to those who are
    waited for: a look may take a process."""
    begin = time.monotonic()
    while (look := time.monotonic()) < begin + PATIENCE:
        value = condition()
        if value:
            return value
        time.sleep(min(max(0.02, 14 * (time.monotonic() - look), (look - begin) / 5), 1))
    raise AssertionError(f"waited in vain for {what}, while its processes said at last:\n{last_words()}")


def kept(name, make):
    """What make() returns, which JSON can say and which is the same each time: made once by a program, and of several
    rounds in the first. Nobody changes it."""
    path = KEPT and os.path.join(KEPT, name + ".json")
    if name not in MADE and path and os.path.exists(path):
        with open(path) as file:
            MADE[name] = json.load(file)
    elif name not in MADE:
        MADE[name] = make()
        if path:
            with tempfile.NamedTemporaryFile("w", dir=KEPT, delete=False) as file:
                json.dump(MADE[name], file)
            os.rename(file.name, path)
    return MADE[name]


def skip_unless_gpu():
    """The reason is op_test's own: it finds the device as a worker does."""
    done = subprocess.run([program("tests/conformance/op_test"), "cuda", "Abs"], capture_output=True, text=True,
                          check=False)
    for line in done.stdout.splitlines():
        if "# SKIP" in line:
            raise Skip(line.split("# SKIP", 1)[1].strip())


def made_up_gpus(library, prefix, settings):
    """An environment in which workers load this plugin. That they cannot, as it is of another build, is said at once:
    else a run would wait for them."""
    environment = dict(os.environ, WEIR_CUDA=library)
    refused = subprocess.run([program("weir-worker"), "--device", "cuda:63"], capture_output=True, text=True,
                             timeout=PATIENCE, check=False, env=environment)
    assert "there is no GPU 63" in refused.stderr, refused.stderr
    return {**environment, **{f"{prefix}_{key.upper()}": str(value) for key, value in settings.items()}}


def simulated_gpus(**settings):
    """With two simulated devices; settings: WEIR_SIMULATED_*, of tests/simulation/cuda/simulation.h."""
    if not os.path.exists(SIMULATED):
        raise Skip("there is no simulated device: CUDA's headers are missing")
    return made_up_gpus(SIMULATED, "WEIR_SIMULATED", {"devices": 2, **settings})


def weir(*arguments, status=0, **options):
    """Runs the client to its end; checks its exit status. Returns the finished process (text output)."""
    done = subprocess.run([program("weir"), *map(str, arguments)], capture_output=True, text=True,
                          timeout=PATIENCE * 3, **options)
    assert done.returncode == status, (
        f"weir {' '.join(map(str, arguments))}: exit {done.returncode}, expected {status}\n"
        f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done


def health(*arguments):
    """What `weir health` says, which waits three seconds for an answer: once one has come in that time."""
    def said():
        done = subprocess.run([program("weir"), "health", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode in (0, 3), done
        return done.returncode == 0 and done.stdout
    return wait_for(said, f"an answer at {arguments[0]}")


def reserve_port():
    """A port that no other process of the tests is given while this one lives: for what is started at it more than once."""
    while True:
        port, lock = random.choice(PORTS), socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0weir-test-port-{port}")
            for number in (port, port + BUS):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
        except OSError:
            lock.close()
            continue
        RESERVED[port] = lock
        return port


class Folder:
    """A temporary folder with helpers; removed at the end of the `with` block."""

    def __init__(self, place=FOLDERS):
        self.place = place

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="weir-test-", dir=self.place)
        return self

    def __exit__(self, *unused):
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name, text=None):
        path = os.path.join(self.path, name)
        if text is not None:
            with open(path, "w" if isinstance(text, str) else "wb") as out:
                out.write(text)
        return path

    def model(self, kind, *options):
        path = self.file(f"{kind}.onnx")
        weir("model", kind, *options, "-o", path)
        return path

    def small_data(self, train_samples, eval_samples):
        """The first images of Fashion-MNIST as train-* and t10k-* files here: a worker loads them in no time."""
        if not os.path.isdir(DATA):
            raise Skip("dataset-fashion-mnist is not installed")
        for name, samples in (("train", train_samples), ("t10k", eval_samples)):
            for kind, dims, sample_bytes in (("images-idx3", 3, 28 * 28), ("labels-idx1", 1, 1)):
                with gzip.open(os.path.join(DATA, f"{name}-{kind}-ubyte.gz")) as file:
                    head, body = file.read(4 + 4 * dims), file.read(samples * sample_bytes)
                self.file(f"{name}-{kind}", head[:4] + struct.pack(">I", samples) + head[8:] + body)

    def small_spec(self, model, microbatches, steps, eval_steps):
        """A spec over small_data: 12 samples a microbatch, an evaluation every eval_steps."""
        return self.file(f"spec-{microbatches}-{steps}.yaml", f"""name: small
model: {{onnx: {model}, loss: cross_entropy}}
data:
  root: {self.path}
  train: {{format: idx, images: train-images-idx3, labels: train-labels-idx1}}
  eval: {{format: idx, images: t10k-images-idx3, labels: t10k-labels-idx1}}
  transforms: [{{scale: 0.00392156862745098}}]
train:
  steps: {steps}
  batch: {microbatches * 12}
  microbatches: {microbatches}
  seed: 3
  optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
eval: {{every_steps: {eval_steps}}}
""")

    def spec(self, model, name="spec.yaml", run="test", train="", data="", tail=""):
        """A spec over Fashion-MNIST; train and data are further lines of those sections."""
        if not os.path.isdir(DATA):
            raise Skip("dataset-fashion-mnist is not installed")
        return self.file(name, f"""name: {run}
model: {{onnx: {model}, loss: cross_entropy}}
data:
  root: {DATA}
  train: {{format: idx, images: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz}}
  transforms: [{{scale: 0.00392156862745098}}, {{normalize: {{mean: [0.2860], std: [0.3530]}}}}]
{data}train:
{train}{tail}""")


class Process:
    """A process of ours, killed (by pid) at the end of the `with` block, or of the program."""
    living = set()

    def __init__(self, *command, **options):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.child = subprocess.Popen([str(part) for part in command], stdout=self.log, stderr=subprocess.STDOUT,
                                      text=True, **options)
        self.living.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.log.close()
        self.living.discard(self)

    def output(self):
        with open(f"/proc/self/fd/{self.log.fileno()}", errors="replace") as log:  # the process keeps its place
            return log.read()

    def send(self, number):
        """Returns after SIGSTOP when all of the process stands still. Until the thread that takes the signal has had a core,
        the others go on."""
        self.child.send_signal(number)
        look = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        if number == signal.SIGSTOP and self.child.returncode is None:
            wait_for(lambda: os.waitid(os.P_PID, self.child.pid, look), "the process to stand still")

    def wait(self):
        """Its exit status."""
        return self.child.wait(PATIENCE * 3)


def last_words(lines=20, columns=400):
    """The ends of what the living processes said, those first that started first."""
    processes = sorted(Process.living, key=lambda process: process.child.pid)
    return "\n".join(line for process in processes for line in (
        f"{os.path.basename(process.child.args[0])} {process.child.pid} ({process.child.poll()}):",
        *("  " + line[:columns] for line in process.output().splitlines()[-lines:])))


def start_announced(*command, **options):
    """Starts a server with --announce-fd; returns (Process, its HOST:PORT)."""
    reader, writer = os.pipe()
    process = Process(*command, "--announce-fd", writer, pass_fds=[writer], **options)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        address = pipe.readline().strip()
    if not address:
        text = process.output()
        process.__exit__()
        raise AssertionError(f"{command[0]} did not announce its address:\n{text[-2000:]}")
    return process, address


def own_address():
    return f"127.0.0.1:{reserve_port()}"


class Cluster:
    """A coordinator, servers and workers as separate processes. advertise: where workers reach each server. is_patient: no
    run is rolled back because a server comes back late, as it may on a slow machine. gate: of gate.py, which workers heed.
    options: more of the coordinator's, as listen and process."""

    def __init__(self, folder, servers=1, workers=1, threads=1, advertise=None, store=None, is_patient=False, gate=None,
                 options=(), listen=None, **process):
        self.folder, self.gate, self.processes, self.workers, self.servers = folder, gate, [], [], []
        self.server_options = ()  # more of each server's that is started
        self.store = store or "file://" + os.path.join(folder.path, "store")
        self.address = listen or own_address()
        self.patience = (*options, *(("--server-grace", 3600) if is_patient else ()))
        self.start_coordinator(**process)
        for number in range(servers):
            self.add_server(advertise[number] if advertise else None)
            self.all_join()  # so that their ids are in their order
        for _ in range(workers):
            self.add_worker(threads)

    def start_coordinator(self, **process):
        """The first one, or one at the address of a former one that has died."""
        self.coordinator, self.address = start_announced(
            program("weir-server"), "--role=coordinator", "--listen", self.address, "--store", self.store, *self.patience,
            **process)
        self.processes.append(self.coordinator)
        wait_for(lambda: self.coordinator.child.poll() is not None or SETTLED.search(self.coordinator.output()),
                 "the coordinator to lead, or to say why not")  # it announces itself after 5 s even so

    def start_server(self, listen=None, advertise=None, coordinator=None, **process):
        """(Process, its address), which is not yet in .servers. coordinator: where to look for it, if elsewhere."""
        elsewhere = ["--advertise", advertise] if advertise else []
        server, address = start_announced(
            program("weir-server"), "--role=parameters", "--listen", listen or own_address(), "--coordinator",
            coordinator or self.address, "--store", self.store, *elsewhere, *self.server_options, **process)
        self.processes.append(server)
        return server, address

    def add_server(self, advertise=None, coordinator=None, **process):
        self.servers.append(self.start_server(advertise=advertise, coordinator=coordinator, **process))

    def restart_server(self, number):
        """Another process at the address of one that has died."""
        self.servers[number] = self.start_server(listen=self.servers[number][1])

    def add_worker(self, threads=1, coordinator=None, options=(), node=None, **process):
        """node: on which it is to believe itself, if not on this one."""
        extra = {**({"WEIR_NODE": node} if node else {}), **(self.gate.variables if self.gate else {})}
        if extra:
            process["env"] = {**os.environ, **process.get("env", {}), **extra}
        worker = Process(program("weir-worker"), "--coordinator", coordinator or self.address, "--threads", threads,
                         *options, **process)
        self.processes.append(worker)
        self.workers.append(worker)
        return worker

    def all_join(self):
        """Waits for it: what is submitted now has them from its start on."""
        members = [*(server for server, _ in self.servers), *self.workers]
        wait_for(lambda: all(" member joined " in member.output() for member in members), "the members to join")

    def __enter__(self):
        self.all_join()
        return self

    def __exit__(self, *unused):
        for process in reversed(self.processes):
            process.__exit__()

    def json(self, *arguments):
        """What is answered: asked again where a coordinator that stands still has not answered within the client's deadline."""
        command = [program("weir"), *map(str, arguments), "--coordinator", self.address, "--json"]

        def answer():
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
            assert done.returncode in (0, UNANSWERED), f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-3000:]}"
            return done if done.returncode == 0 else None
        return json.loads(wait_for(answer, f"an answer to {' '.join(command[1:])}").stdout)


def table_rows(path, word):
    """The names of a .def file's rows, WORD(name, ...)."""
    with open(os.path.join(ROOT, path)) as table:
        return re.findall(rf"^{word}\((\w+)[,)]", table.read(), re.MULTILINE)


def read_metrics(path):
    if not os.path.exists(path):
        return []
    with open(path) as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def newest_step(path):
    return max((event["step"] for event in read_metrics(path) if event["event"] == "step"), default=-1)


def done_event(path):
    events = read_metrics(path)
    assert events and events[-1]["event"] == "done", f"{path}: the last line is not done: {events[-1:]}"
    return events[-1]


STEP_KEYS = ("step", "epoch", "loss", "lr", "samples")
EVAL_KEYS = ("step", "loss", "accuracy")


def outcome(path):
    """What a run's metrics say of what must not depend on who computed it."""
    events = read_metrics(path)
    steps = [[event[key] for key in STEP_KEYS] for event in events if event["event"] == "step"]
    evals = [[event[key] for key in EVAL_KEYS] for event in events if event["event"] == "eval"]
    return {"steps": steps, "evals": evals, "weights": done_event(path)["weights_sha256"]}


def assert_recovered(path, expected):
    """A run that was disturbed, by its metrics: whatever they say of a step or an evaluation, in any incarnation, is
    what those of the undisturbed run say (`expected`, its outcome); nothing is missing, and nothing comes twice."""
    marks = {}
    for kind, keys in (("step", STEP_KEYS), ("eval", EVAL_KEYS)):
        events = [event for event in read_metrics(path) if event["event"] == kind]
        marks[kind] = [(event.get("incarnation", 0), event["step"]) for event in events]
        wanted = {line[0]: line for line in expected[kind + "s"]}
        for event in events:
            found = [event[key] for key in keys]
            assert found == wanted[event["step"]], f"{kind}: {event}, undisturbed {wanted[event['step']]}"
        assert marks[kind] == sorted(set(marks[kind])), f"each {kind} of an incarnation once, in order"
        missing = set(wanted) - {step for _, step in marks[kind]}
        assert not missing, f"{kind}s {sorted(missing)} are missing"
    for (before, last), (after, step) in zip(marks["step"], marks["step"][1:]):
        is_next = step == last + 1 if before == after else step <= last + 1
        assert is_next, f"step {step} of incarnation {after} follows step {last} of {before}"
    assert done_event(path)["weights_sha256"] == expected["weights"], "the weights differ"


def children_of(pid, name):
    """pids of the direct children of `pid` that run the program `name`."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat, open(f"/proc/{entry}/cmdline") as command:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
                if parent == pid and os.path.basename(command.read().split("\0")[0]) == name:
                    found.append(int(entry))
        except (OSError, IndexError):
            continue
    return sorted(found)


@atexit.register
def kill_the_rest():
    """What a test left that failed before its `with` block."""
    for process in list(Process.living):
        process.__exit__()


def cpu_seconds():
    """Of this program, and of all that it started and waited for."""
    return sum(os.times()[:4])


def main(names):
    tests = [(name, value) for name, value in names.items() if name.startswith("test_") and callable(value)]
    only = sys.argv[1:]
    tests = [(name, value) for name, value in tests if not only or name in only]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        label = name[len("test_"):]
        began, cpu_began = time.monotonic(), cpu_seconds()
        try:
            if DEVICE == "cuda":
                skip_unless_gpu()
            test()
            spent = cpu_seconds() - cpu_began
            print(f"ok {number} - {label} ({time.monotonic() - began:.1f} s, {spent:.1f} s of CPU)", flush=True)
        except Skip as reason:
            print(f"ok {number} - {label} # SKIP {reason}", flush=True)
        except Exception:  # a test may fail in any way; the run goes on
            failed += 1
            print(f"not ok {number} - {label}", flush=True)
            print("".join("# " + line + "\n" for line in traceback.format_exc().splitlines()), end="", flush=True)
    signal.alarm(0)
    sys.exit(1 if failed else 0)
