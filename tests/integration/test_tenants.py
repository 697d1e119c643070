"""A tenant sees and changes its own runs and sweeps alone. Every method of every service is called by a stock grpcio client of another
tenant, and every command of ours: what is hidden must be answered as what is not there."""
import contextlib
import json
import os
import re
import signal

from certificates import Authority
from gate import Gate
from harness import Cluster, Folder, Process, done_event, main, newest_step, program, table_rows, wait_for, weir
from test_roles import HELLO, methods
from test_sweep import write_sweep
from test_tickets import Attacker, text_field
from test_tls import undisturbed, write_spec

STEP = 1  # at which the run that is to be hidden stands
UNKNOWN = "nobody"
TICKET = "{}/0/0/" + 64 * "0"


class Tenants:
    """A cluster in which a run, one that is over, a sweep and a worker are vision's."""

    def __init__(self, folder, cluster, authority):
        self.folder, self.cluster, self.authority = folder, cluster, authority

    def certificate(self, role, tenant, access=None):
        out = self.folder.file("-".join(filter(None, (role, tenant, access))))
        if not os.path.exists(out):
            weir("certs", "issue", "--ca", self.authority.path, "--role", role, "--tenant", tenant,
                 *(("--access", access) if access else ()), out)
        return out

    def ask(self, tenant, access, *arguments, status=0):
        return weir(*arguments, "--coordinator", self.cluster.address, "--tls", self.certificate("client", tenant, access), status=status)

    def names(self):
        """What nobody else is to read."""
        return [self.live, self.over, self.sweep, "gpu-7"]


@contextlib.contextmanager
def tenants(folder):
    authority, gate = Authority(folder), Gate(folder)
    with Cluster(folder, servers=0, workers=0, gate=gate, options=("--tls", authority.folder("coordinator"))) as cluster:
        cluster.server_options = ("--tls", authority.folder("server"))
        cluster.add_server()
        there = Tenants(folder, cluster, authority)
        cluster.add_worker(options=("--tls", authority.folder("worker")))
        cluster.all_join()
        cluster.add_worker(options=("--tls", there.certificate("worker", "vision"), "--label", "site=gpu-7"))
        cluster.all_join()
        there.over = there.ask("vision", "submitter", "submit", write_spec(folder)).stdout.strip()
        wait_for(lambda: json.loads(there.ask("vision", "viewer", "status", there.over, "--json").stdout)["state"] == "done", "a run's end")
        metrics = folder.file("metrics.jsonl")
        gate.stop_at(STEP)
        with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator", cluster.address,
                     "--tls", there.certificate("client", "vision", "submitter")) as follower:
            wait_for(lambda: newest_step(metrics) >= STEP, "the run to stand")
            there.live, = (row["run"] for row in json.loads(there.ask("vision", "viewer", "runs", "--json").stdout) if row["run"] != there.over)
            sweeps = Folder()
            sweeps.path = folder.path
            there.sweep = there.ask("vision", "submitter", "sweep", write_sweep(sweeps)).stdout.strip()
            yield there
            there.ask("vision", "submitter", "sweep", "stop", there.sweep)
            gate.open()
            assert follower.wait() == 0, follower.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == undisturbed()


class Caller(Attacker):
    """Calls as the holder of a certificate of this tenant."""

    def __init__(self, there, role, tenant, access=None):
        super().__init__(there.certificate(role, tenant, access))
        self.there, self.role = there, role

    def ask(self, method, message, ticket=None):
        address, name = self.there.cluster.address, "coordinator.weir"
        if method.startswith("Parameters/"):
            address, name = self.there.cluster.servers[0][1], "server.weir"
        if method.startswith("Peers/"):
            worker = self.there.cluster.workers[0]
            address, name = re.search(r" listening address=(\S+)", worker.output()).group(1), "worker.weir"
        return self.call(name, address, method, ticket, message)


def named(more=b""):
    """A request whose first field is the name of a run, or of a sweep: both are answered alike, NOT_FOUND."""
    def check(callers, method, hidden):
        answers = [callers["client"].ask(method, text_field(1, name) + more) for name in (hidden, UNKNOWN)]
        assert answers[0][0] == "NOT_FOUND", (method, hidden, answers)
        assert (answers[0][1].replace(hidden, UNKNOWN), answers[0][2]) == answers[1][1:], (method, answers)
    return check


def by_member(callers, method, hidden):
    """With a ticket that is none: a worker of another tenant learns no more of the run than of one that is not there."""
    answers = [callers["worker"].ask(method, text_field(1, name), TICKET.format(name)) for name in (hidden, UNKNOWN)]
    assert answers[0][0] != "OK" and answers[0][0] == answers[1][0], (method, answers)
    assert answers[0][1].replace(hidden, UNKNOWN) == answers[1][1], (method, answers)


def lists(message=b"", who="client"):
    """A reply in which nothing of it is."""
    def check(callers, method, hidden):
        status, details, reply = callers[who].ask(method, message)
        assert status == "OK", (method, status, details)
        for secret in callers["there"].names():
            assert secret.encode() not in reply, (method, secret, reply)
    return check


def of_worker(callers, method, hidden):
    """Vision's own worker is not there for others; the server, and the other worker, are for all."""
    answers = [callers["client"].ask(method, text_field(1, name)) for name in ("worker-2", "worker-7")]
    assert answers[0][0] == "NOT_FOUND", answers
    assert answers[0][1].replace("worker-2", "worker-7") == answers[1][1], answers


def of_all(callers, method, hidden):
    status, details, _ = callers["client"].ask(method, text_field(1, "server-1"))
    assert status == "PERMISSION_DENIED" and "is for all tenants" in details, (status, details)


def submits(callers, method, hidden):
    """A sweep that is to learn from another tenant's."""
    there = callers["there"]
    said = [there.ask("nlp", "submitter", "sweep", there.folder.file("sweep.yaml"), "search={name: tpe}", f"from=[{name}]", status=2).stderr
            for name in (there.sweep, UNKNOWN)]
    assert said[0].replace(there.sweep, UNKNOWN) == said[1], said


HEALTH = ("grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch")
REFLECTION = tuple(f"grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha"))
RUNS = ("GetRun", "Watch", "Cancel", "Pause", "Stop", "Resume", "ListCheckpoints", "Verify", "GetSeries", "GetModel", "GetPieces", "GetWeights",
        "GetLayout", "GetBatch", "TraceRun", "ForkRun", "CollectGarbage")
SWEEPS = ("GetSweep", "ExtendSweep", "DeleteSweep", "StopSweep")
# What each method does for somebody of another tenant. One that is not here fails the test.
ROWS = {
    **{f"Training/{name}": named() for name in (*RUNS, *SWEEPS)},
    "Training/SetRun": named(text_field(2, "priority=3")),
    **{f"Training/{name}": lists() for name in ("ListRuns", "ListSweeps", "ListWorkers", "ListServers", "GetOverview")},
    "Training/Submit": submits,
    "Training/DrainWorker": of_worker, "Training/ReadmitWorker": of_worker, "Training/DrainServer": of_all,
    "Cluster/Join": lists(bytes.fromhex(HELLO["worker"]), "worker"),
    **{f"Cluster/{name}": by_member for name in ("FetchModel", "FetchPieces", "FetchLayout", "FetchBatch")},
    **{f"Parameters/{name}": by_member for name in ("Push", "Pull", "Versions", "Share", "Sums")},
    "Peers/Send": by_member,
    **{name: lists() for name in HEALTH}, **{name: lists(text_field(7, "")) for name in REFLECTION},
}


def assert_hidden(there):
    with Caller(there, "client", "nlp", "operator") as client, Caller(there, "worker", "nlp") as worker:
        callers = {"client": client, "worker": worker, "there": there}
        for method in sorted(methods()):
            is_of_sweep = method.removeprefix("Training/") in SWEEPS
            for hidden in (there.sweep,) if is_of_sweep else (there.live, there.over):
                ROWS[method](callers, method, hidden)


def test_every_method_answers_what_is_another_tenants_as_what_is_not_there():
    assert set(ROWS) == methods()
    with Folder() as folder, tenants(folder) as there:
        assert_hidden(there)
        there.cluster.coordinator.send(signal.SIGKILL)
        there.cluster.coordinator.wait()
        there.cluster.start_coordinator()
        wait_for(lambda: "ready" in there.ask("default", "operator", "workers").stdout and
                 "server-1" in there.ask("default", "operator", "servers").stdout, "the members to be back")
        assert_hidden(there)  # a successor knows whose they are


# Of our commands those that name a run, with what stands behind it. Of the others nothing of it is in what they print.
COMMANDS = {"status": (), "watch": (), "pause": (), "stop": (), "cancel": (), "set": ("priority=3",), "checkpoints": (), "verify": (), "eval": (), "logs": (),
            "trace": ()}
OF_RUNS_THAT_ARE_OVER = {"resume": (), "fork": (), "gc": (), "export": ("-o", "out.safetensors")}
SWEEP_COMMANDS = {"status": (), "watch": (), "best": (), "stop": (), "delete": (), "extend": ("budget.trials=99",),
                  "export": ("-o", "out.onnx"), "importance": ()}
LISTS = {"runs": (), "workers": (), "servers": (), "top": ("--once",)}
NAME_NONE = {"complete", "train", "submit", "drain", "health", "init", "inspect", "model", "certs", "ui", "version", "sweep"}


def test_every_command_says_the_same_of_it_as_of_what_is_not_there():
    assert set(COMMANDS) | set(OF_RUNS_THAT_ARE_OVER) | set(LISTS) | NAME_NONE == set(table_rows("client/command.def", "COMMAND"))
    with Folder() as folder, tenants(folder) as there:
        asked = [(("sweep", command), there.sweep, more) for command, more in SWEEP_COMMANDS.items()]
        asked += [((command,), there.live, more) for command, more in COMMANDS.items()]
        asked += [((command,), there.over, more) for command, more in OF_RUNS_THAT_ARE_OVER.items()]
        for command, hidden, more in asked:
            more = [folder.file(word) if word.startswith("out.") else word for word in more]
            said = [there.ask("nlp", "operator", *command, name, *more, status=2).stderr.replace(hidden, UNKNOWN) for name in (hidden, UNKNOWN)]
            assert said[0] == said[1] and UNKNOWN in said[0], (command, said)
        for command, more in LISTS.items():
            for words in (more, ("--json",)) if command != "top" else ():
                own, others = (there.ask(tenant, "viewer", command, *words).stdout for tenant in ("vision", "nlp"))
                assert not any(name in others for name in there.names()), (command, others)
                assert command == "servers" or any(name in own for name in there.names()), (command, own)
        assert json.loads(there.ask("nlp", "viewer", "servers", "--json").stdout)[0]["runs"] == 0


def test_operators_of_the_default_tenant_see_all_and_what_they_fork_stays_its_tenants():
    with Folder() as folder, tenants(folder) as there:
        for access, sees in (("operator", True), ("submitter", False)):
            listed = there.ask("default", access, "runs").stdout
            assert (there.live in listed) == (there.over in listed) == sees, (access, listed)
        fork = there.ask("default", "operator", "fork", there.over, "train.steps=24", "--name", "theirs").stdout.strip()
        assert fork in there.ask("vision", "viewer", "runs").stdout
        assert fork not in there.ask("default", "viewer", "runs").stdout
        there.ask("default", "operator", "cancel", fork)
        error = there.ask("vision", "operator", "drain", "worker-1", status=2).stderr
        assert "worker-1 is for all tenants" in error, error


def test_a_worker_of_one_tenant_is_given_that_tenants_runs_alone():
    with Folder() as folder:
        authority = Authority(folder)
        with Cluster(folder, servers=0, workers=0, options=("--tls", authority.folder("coordinator"))) as cluster:
            cluster.server_options = ("--tls", authority.folder("server"))
            cluster.add_server()
            there = Tenants(folder, cluster, authority)
            cluster.add_worker(options=("--tls", there.certificate("worker", "vision")))
            cluster.all_join()
            others = there.ask("nlp", "submitter", "submit", write_spec(folder)).stdout.strip()
            own = there.ask("vision", "submitter", "submit", write_spec(folder)).stdout.strip()

            def info(tenant, run):
                return json.loads(there.ask(tenant, "viewer", "status", run, "--json").stdout)
            wait_for(lambda: info("vision", own)["state"] == "done", "its run's end")
            assert info("vision", own)["weights_sha256"] == undisturbed()
            waits = info("nlp", others)
            assert waits["state"] == "queued" and waits["message"] == "waiting for workers: 0 of 1", waits
            cluster.add_worker(options=("--tls", authority.folder("worker")))
            wait_for(lambda: info("nlp", others)["state"] == "done", "the other run's end")


if __name__ == "__main__":
    main(globals())
