"""Who has no ticket of a run neither reads nor changes it: a stock grpcio client tries, while the run stands still."""
import contextlib
import json
import os
import struct
import subprocess

from certificates import Authority, point_to
from gate import Gate
from harness import PEER_PYTHON, Cluster, Folder, Process, Skip, done_event, main, newest_step, program, wait_for, weir
from test_roles import address_of
from test_tls import undisturbed, write_spec
from tickets import peer_key_of, ticket_of

HERE = os.path.dirname(os.path.abspath(__file__))
STEP = 1  # the last one that runs make before they are attacked
ANN, EVE = "spiffe://weir/worker/ann", "spiffe://weir/worker/eve"


class Attacker:
    """peer_tickets.py, with the files of a certificate or without."""

    def __init__(self, certificate=None):
        if not os.path.exists(PEER_PYTHON):
            raise Skip("the peers' environment is missing")
        files = [os.path.join(certificate, name) for name in ("ca.pem", "cert.pem", "key.pem")] if certificate else []
        self.child = subprocess.Popen([PEER_PYTHON, os.path.join(HERE, "peer_tickets.py"), *files], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.child.kill()
        self.child.communicate()

    def call(self, name, address, path, ticket, message):
        """path: of a method, without "weir." if it is Weir's own. Returns the status, the details and the first reply."""
        path = path if path.startswith("grpc.") else "weir." + path
        print(json.dumps({"name": name, "address": address, "path": "/" + path, "ticket": ticket, "hex": message.hex()}),
              file=self.child.stdin, flush=True)
        answer = json.loads(self.child.stdout.readline())
        return answer["status"], answer["details"], bytes.fromhex(answer["hex"])


def text_field(number, text):
    return bytes((number << 3 | 2, len(text))) + text.encode()


def varint_field(number, value):
    return bytes((number << 3, value))


def push_of(run):
    """A PushRequest: a part of block 0, version 0, of one element; what is behind the ticket refuses it by its size."""
    return text_field(1, run) + varint_field(6, 0) + bytes((15 << 3 | 2, 4)) + struct.pack("<f", 7)


def pull_of(run):
    """A PullRequest: block 0 at the version at which the runs stand."""
    return text_field(1, run) + varint_field(4, STEP + 1)


def damaged(ticket):
    return ticket[:-1] + ("0" if ticket[-1] != "0" else "1")


@contextlib.contextmanager
def two_runs(folder, cluster, options=()):
    """Two runs of the same spec that stand; they must then end in the hash that one has undisturbed."""
    spec, gate = write_spec(folder), cluster.gate
    files = [folder.file("one.jsonl"), folder.file("two.jsonl")]
    gate.stop_at(STEP)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Process(program("weir"), "submit", spec, "--follow", "--metrics", file, "--coordinator",
                                               cluster.address, *options)) for file in files]
        for file in files:
            wait_for(lambda file=file: newest_step(file) >= STEP, "both runs to stand")
        yield [row["run"] for row in json.loads(weir("runs", "--json", "--coordinator", cluster.address, *options).stdout)]
        gate.open()
        for client, file in zip(clients, files):
            assert client.wait() == 0, client.output()[-3000:]
            assert done_event(file)["weights_sha256"] == undisturbed()


def assert_denied(answer, word="ticket"):
    status, details, _ = answer
    assert status == "PERMISSION_DENIED" and word in details and "\n" not in details, answer


def attack(attacker, cluster, runs, holder, others):
    """others: tickets that are not this caller's."""
    one, two = runs
    store = cluster.store.removeprefix("file://")
    own = ticket_of(store, one, holder=holder)

    def parameters(method, ticket, message):
        return attacker.call("server.weir", cluster.servers[0][1], f"Parameters/{method}", ticket, message)

    def model(method, ticket, run):
        return attacker.call("coordinator.weir", cluster.address, f"Cluster/{method}", ticket, text_field(1, run))

    status, details, reply = parameters("Pull", own, pull_of(one))  # so it is the ticket that counts
    assert status == "OK" and reply, details
    status, details, _ = parameters("Push", own, push_of(one))
    assert status == "INVALID_ARGUMENT" and "bytes of data" in details, details
    assert_denied(parameters("Push", own, push_of(one) + varint_field(9, 1)), "says that worker-1 sends it, its ticket is that of worker-0")
    for ticket in (None, "nonsense", damaged(own), ticket_of(store, two, holder=holder).replace(two, one), *others):
        for method, message in (("Push", push_of(one)), ("Pull", pull_of(one)), ("Versions", text_field(1, one))):
            assert_denied(parameters(method, ticket, message))
        for method in ("FetchModel", "FetchPieces"):
            assert_denied(model(method, ticket, one))
    assert_denied(parameters("Push", own, push_of(two)), f"the call is for run '{two}'")
    assert_denied(parameters("Pull", own, pull_of(two)), f"the call is for run '{two}'")
    for method in ("FetchModel", "FetchPieces"):
        assert_denied(model(method, own, two), f"ticket for run '{two}'")
    status, details, reply = model("FetchModel", own, one)
    assert status == "OK" and reply, details
    status, details, _ = parameters("Pull", ticket_of(store, one, 1, holder), pull_of(one))
    assert status == "FAILED_PRECONDITION" and "is in incarnation 0 here, the call's ticket is for 1" in details, details


@contextlib.contextmanager
def anns_workers(folder, **process):
    """(A cluster with a gate and two workers, which are ann's, a client's options, eve's folder). process: options of coordinator and server."""
    authority = Authority(folder)
    people = {name: folder.file(name) for name in ("ann", "eve")}
    for name, out in people.items():
        weir("certs", "issue", "--ca", authority.path, "--role", "worker", "--name", name, out)
    with Cluster(folder, servers=0, workers=0, is_patient=True, gate=Gate(folder), options=("--tls", authority.folder("coordinator")),
                 **process) as cluster:  # tickets are those of incarnation 0
        cluster.authority, cluster.server_options = authority, ("--tls", authority.folder("server"))
        cluster.add_server(**process)
        for _ in range(2):
            cluster.add_worker(options=("--tls", people["ann"]))
        yield cluster, ("--tls", authority.folder("client")), people["eve"]


def test_with_certificates_a_ticket_is_its_holders_alone():
    with Folder() as folder, anns_workers(folder) as (cluster, client, eve):
        with two_runs(folder, cluster, client) as runs, Attacker(eve) as attacker:
            store = cluster.store.removeprefix("file://")
            attack(attacker, cluster, runs, EVE, [ticket_of(store, runs[0], holder=holder) for holder in (ANN, "", "servers")])


def test_a_worker_whose_certificate_gets_another_name_joins_by_it_and_the_run_goes_on():
    """Its ticket is the former name's: it is another member from then on."""
    with Folder() as folder:
        authority, gate, other = Authority(folder), Gate(folder), folder.file("other")
        weir("certs", "issue", "--ca", authority.path, "--role", "worker", "--name", "other", other)
        link = point_to(folder.file("link"), authority.folder("worker"))
        with Cluster(folder, servers=0, workers=0, gate=gate, options=("--tls", authority.folder("coordinator"))) as cluster:
            cluster.server_options = ("--tls", authority.folder("server"))
            cluster.add_server()
            worker, client = cluster.add_worker(options=("--tls", link)), ("--tls", authority.folder("client"))
            gate.stop_at(STEP)
            metrics = folder.file("metrics.jsonl")
            with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator",
                         cluster.address, *client) as follower:
                wait_for(lambda: newest_step(metrics) >= STEP, "the run to stand")
                point_to(link, other)
                says = "our certificate is that of spiffe://weir/worker/other now"
                wait_for(lambda: " joined coordinator=" in worker.output().partition(says)[2], "the worker to join again")
                gate.open()
                assert follower.wait() == 0, follower.output()[-3000:]
            assert done_event(metrics)["weights_sha256"] == undisturbed()


def test_without_tls_a_ticket_still_is_of_one_run_alone():
    with Folder() as folder, Cluster(folder, workers=2, is_patient=True, gate=Gate(folder)) as cluster:
        with two_runs(folder, cluster) as runs, Attacker() as attacker:
            store = cluster.store.removeprefix("file://")
            attack(attacker, cluster, runs, "", [ticket_of(store, runs[0], holder=EVE)])


def piece_of(run):
    """A BoundaryPiece of no team that there is: what is behind the ticket refuses it by that."""
    return text_field(1, run) + varint_field(4, 99)


def test_workers_of_a_team_take_pieces_from_those_with_a_ticket_alone():
    with Folder() as folder, anns_workers(folder) as (cluster, options, eve):
        client, metrics = ("--coordinator", cluster.address, *options), folder.file("metrics.jsonl")
        store = cluster.store.removeprefix("file://")
        cluster.gate.stop_at(STEP)
        with Process(program("weir"), "submit", write_spec(folder, "workers: {stages: 2, min: 2}\n"), "--follow", "--metrics", metrics,
                     *client) as follower, Attacker(eve) as attacker:
            wait_for(lambda: newest_step(metrics) >= STEP, "the run to stand")
            run = json.loads(weir("runs", "--json", *client).stdout)[0]["run"]
            key = peer_key_of(store, run)
            for worker in cluster.workers:
                def send(ticket, message=piece_of(run), address=address_of(worker).group(1)):
                    return attacker.call("worker.weir", address, "Peers/Send", ticket, message)

                own = ticket_of(store, run, holder=EVE, key=key)
                status, details, _ = send(own)  # so it is the ticket that counts
                assert status == "ABORTED" and "does not work in team 99" in details, details
                for ticket in (None, "nonsense", damaged(own), ticket_of(store, run, holder=EVE), ticket_of(store, run, holder=ANN, key=key)):
                    assert_denied(send(ticket))
                assert_denied(send(ticket_of(store, run, 1, EVE, key=key)), "the call's ticket is not")
            cluster.gate.open()
            assert follower.wait() == 0, follower.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == undisturbed()


if __name__ == "__main__":
    main(globals())
