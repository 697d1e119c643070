"""Every attack of docs/SECURITY.md at once, on a cluster with certificates while two runs train: each is refused, and the runs
end in the hash that they have undisturbed. Attackers are openssl, grpcio, raw sockets, and programs of Weir with certificates that they should not
have."""
import contextlib
import os
import resource
import struct
import subprocess
import threading

from certificates import Authority
from harness import PATIENCE, Folder, Process, main, newest_step, program, wait_for, weir
from raw_http2 import ENDLESS, GREETING, connect, is_closed, send_endless
from test_expiry import DAY_S, deny
from test_limits import EVIL, FRAMES
from test_roles import address_of
from test_tickets import EVE, STEP, Attacker, anns_workers, assert_denied, damaged, pull_of, push_of, text_field, two_runs, varint_field
from test_tls import DATA_ROOT, SETTINGS, client_output, said_by_tls, said_in_plaintext, shown
from tickets import ticket_of

DESCRIPTORS, STEPS, LIFE_S = 200, 3, 8  # STEPS: that the runs make under attack
OVERSIZE = 5 << 20  # a message's bytes
CLIENT = "URI:spiffe://weir/client/a/viewer/c,DNS:client.weir"


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def port_of(address):
    return int(address.rsplit(":", 1)[1])


def long_field(number, data):
    """One of more bytes than text_field takes."""
    size, length = len(data), b""
    while size > 127:
        length, size = length + bytes((size & 127 | 128,)), size >> 7
    return bytes((number << 3 | 2,)) + length + bytes((size,)) + data


class Siege:
    """What the attackers know."""

    def __init__(self, folder, cluster, authority, eve):
        self.folder, self.cluster, self.authority, self.eve = folder, cluster, authority, eve
        self.server, self.mallory, own = cluster.servers[0][1], folder.file("mallory"), folder.file("own")
        weir("certs", "issue", "--ca", authority.path, "--role", "client", "--tenant", "other", "--access", "operator", self.mallory)
        weir("certs", "issue", "--ca", authority.path, "--role", "worker", "--tenant", "other", own)
        cluster.add_worker(options=("--tls", own))  # computes for mallory alone
        workers = [wait_for(lambda worker=worker: address_of(worker), "a worker's port").group(1) for worker in cluster.workers]
        self.addresses = [cluster.address, self.server, *workers]

    def asks(self, *words, status=2):
        return weir(*words, "--coordinator", self.cluster.address, "--tls", self.mallory, status=status).stderr


@contextlib.contextmanager
def strangers(siege):
    """No certificate, and those that are none of ours, or are not valid now; no TLS."""
    other = Authority(siege.folder, "other")
    past, future = (siege.authority.issue(siege.folder.file(name), CLIENT, days) for name, days in (("past", (-9, -2)), ("future", (2, 9))))
    ca = ("-CAfile", siege.authority.path + "/ca.pem")
    ways = (ca, shown(other.folder("client")), shown(past), shown(future),
            (*ca, "-cert", other.path + "/ca.pem", "-key", other.path + "/ca-key.pem"))

    def attack():
        for port in map(port_of, siege.addresses):
            for way in ways:
                assert said_by_tls(port, *way) == b"", (port, way)
            assert not said_in_plaintext(port).startswith(b"\0\0"), port
    yield attack


@contextlib.contextmanager
def impostors(siege):
    """Certificates of ours that are for something else."""
    with Attacker(siege.eve) as worker, Attacker(siege.mallory) as client:
        def attack():
            for attacker, name, address, path in ((worker, "coordinator.weir", siege.cluster.address, "Training/ListRuns"),
                                                  (client, "coordinator.weir", siege.cluster.address, "Cluster/Join"),
                                                  (client, "server.weir", siege.server, "Parameters/Push")):
                assert_denied(attacker.call(name, address, path, None, b""), "the certificate is that of spiffe://weir/")
        yield attack


@contextlib.contextmanager
def forgers(siege):
    """A worker of another name: no ticket, and tickets that are made up, somebody else's, or another run's; and pushes that come again."""
    one, two = siege.runs
    store = siege.cluster.store.removeprefix("file://")
    own = ticket_of(store, one, holder=EVE)
    forged = (None, "nonsense", damaged(own), ticket_of(store, two, holder=EVE).replace(two, one), ticket_of(store, one, holder="spiffe://weir/worker/ann"))
    with Attacker(siege.eve) as eve:
        def call(method, ticket, message):
            return eve.call("server.weir", siege.server, f"Parameters/{method}", ticket, message)

        elems = int(call("Push", own, push_of(one))[1].split(" elements are ")[0].rsplit(" ", 1)[1])
        again = text_field(1, one) + varint_field(6, 2) + long_field(15, struct.pack("<f", 7) * elems)  # of version 0, which is complete

        def attack():
            for ticket in forged:
                assert_denied(call("Push", ticket, push_of(one)))
                assert_denied(call("Pull", ticket, pull_of(one)))
                assert_denied(eve.call("coordinator.weir", siege.cluster.address, "Cluster/FetchModel", ticket, text_field(1, one)))
            assert_denied(call("Push", own, push_of(two)), f"the call is for run '{two}'")
            for _ in range(2):
                status, details, _ = call("Push", own, again)
                assert status == "OK", details
        yield attack


@contextlib.contextmanager
def tenants(siege):
    """An operator of another tenant, whose specs name what is outside of the data root, and whose messages are too large."""
    link, model = os.path.join(DATA_ROOT.name, "link"), siege.folder.model("mlp", "--input", "1", "--classes", "2", "--hidden", "2")
    os.symlink("/etc/passwd", link)
    specs = [siege.folder.file(f"leak-{number}.yaml", f"""name: leak
model: {{onnx: {model}, loss: cross_entropy}}
data: {{root: {DATA_ROOT.name}, train: {{format: csv, file: "{file}", columns: {{x: a, labels: b}}}}}}
train: {{steps: 1, batch: 2, microbatches: 1, optimizer: {{lr: 1}}}}
""") for number, file in enumerate(("../../etc/passwd", "link"))]
    with Attacker(siege.mallory) as mallory:
        def attack():
            for run in siege.runs:
                for words in (("status", run), ("cancel", run), ("set", run, "priority=9"), ("export", run, "-o", siege.folder.file("stolen.onnx"))):
                    assert f"no run '{run}'" in siege.asks(*words), words
            for spec, why in zip(specs, ("names no file below", "lies outside")):
                said = siege.asks("submit", spec, "--follow")
                assert why in said and "root:" not in said, said
            status, details, _ = mallory.call("coordinator.weir", siege.cluster.address, "Training/ListRuns", None, long_field(1, bytes(OVERSIZE)))
            assert status == "RESOURCE_EXHAUSTED", (status, details)
        try:
            yield attack
        finally:
            os.unlink(link)


@contextlib.contextmanager
def slow_and_endless(siege):
    """Connections that say nothing, or half of something, and headers that do not end."""
    def attack():
        slow = [connect(address, EVIL[0]) for address in siege.addresses for _ in range(2)]
        for connection in slow[::2]:
            connection.sendall(GREETING[:10])
        for address in siege.addresses:
            for kind in ENDLESS:
                with connect(address, EVIL[1], siege.mallory) as evil:
                    send_endless(evil, kind, FRAMES)
                    assert is_closed(evil), f"{address}, {kind}: the connection is open"
        for connection in slow:
            assert is_closed(connection), "a connection that says nothing is open"
            connection.close()
    yield attack


@contextlib.contextmanager
def former(siege):
    """Workers that joined, and whose certificate ends, or is denied, in mid-run; a session of one that has ended."""
    port, session = port_of(siege.cluster.address), siege.folder.file("session")
    short = siege.authority.issue(siege.folder.file("short"), "URI:spiffe://weir/worker/short,DNS:worker.weir,DNS:member.weir", (-1, LIFE_S / DAY_S))
    thief = siege.folder.file("thief")
    weir("certs", "issue", "--ca", siege.authority.path, "--role", "worker", "--name", "thief", thief)
    client_output(port, *shown(short), "-sess_out", session)
    guests = [siege.cluster.add_worker(options=("--tls", certificate)) for certificate in (short, thief)]
    wait_for(lambda: " joined coordinator=" in guests[1].output(), "the worker that is to be denied")
    for role in ("coordinator", "server"):
        deny(siege.authority.folder(role), "worker/thief\n")

    def attack():
        wait_for(lambda: "was valid until" in guests[0].output(), "the end of a certificate")
        wait_for(lambda: "its name is in denied.txt here" in guests[1].output(), "a worker to be denied")
        assert SETTINGS not in client_output(port, *shown(short), "-sess_in", session)
        assert SETTINGS not in said_by_tls(port, *shown(short))
    yield attack


ATTACKS = (strangers, impostors, forgers, tenants, slow_and_endless, former)


@contextlib.contextmanager
def besieged(siege):
    """All of them, each on a thread of its own; yields a function that says whether they are done. The block's end waits for them."""
    done, errors = [], []

    def go(attack):
        try:
            attack()
            done.append(attack)
        except BaseException as error:  # said by the test
            errors.append(error)

    def are_done():
        for error in errors:
            raise error
        return len(done) == len(ATTACKS)
    with contextlib.ExitStack() as stack:
        threads = [threading.Thread(target=go, args=(stack.enter_context(attack(siege)),)) for attack in ATTACKS]
        for thread in threads:
            thread.start()
        try:
            yield are_done
        finally:
            for thread in threads:
                thread.join()


def test_two_runs_train_through_every_attack_at_once_to_the_same_weights():
    with Folder() as folder, anns_workers(folder, preexec_fn=few_descriptors) as (cluster, client, eve):
        siege, metrics = Siege(folder, cluster, cluster.authority, eve), [folder.file(name) for name in ("one.jsonl", "two.jsonl")]
        with two_runs(folder, cluster, client) as siege.runs:
            with besieged(siege) as are_done:
                cluster.gate.crawl(lambda: are_done() and min(map(newest_step, metrics)) >= STEP + STEPS, "steps under attack", steps=1, factor=4)
            held = [connect(address, own) for address in siege.addresses[:2] for own in EVIL for _ in range(6)]
            for process in (cluster.coordinator, cluster.servers[0][0]):
                wait_for(lambda: "connection_refused" in process.output(), "descriptors to run out")
            cluster.gate.stop_at(cluster.gate.step + 1)
            wait_for(lambda: min(map(newest_step, metrics)) >= cluster.gate.step, "a step without a descriptor to spare")
            for connection in held:
                connection.close()


if __name__ == "__main__":
    main(globals())
