"""--tls: connections among members and clients are encrypted, both ends show certificates, and no port takes anything else.
Stock tools knock at every port: raw sockets, openssl s_client, grpcio."""
import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile

from certificates import Authority, openssl
from harness import (PATIENCE, PEER_PYTHON, Cluster, Folder, Process, Skip, done_event, kept, main, own_address,
                     program, simulated_gpus, start_announced, wait_for, weir)

HERE = os.path.dirname(os.path.abspath(__file__))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and an empty SETTINGS frame
SETTINGS = b"\4\0\0\0\0\0"  # type, flags and stream of the answer to it
DATA_ROOT = tempfile.TemporaryDirectory(prefix="weir-test-")  # workers want it apart from the folders of certificates
os.environ["WEIR_DATA_ROOT"] = DATA_ROOT.name
MODEL = ("mlp", "--input", "1,28,28", "--hidden", "30", "--classes", "10", "--seed", "5")


def write_spec(folder, more=""):
    """A run whose norm is clipped: its servers talk to each other."""
    data = Folder()
    data.path = DATA_ROOT.name
    data.small_data(240, 48)
    spec = data.small_spec(folder.model(*MODEL), 4, 12, 6)
    text = open(spec).read().replace("  seed: 3\n", "  seed: 3\n  clip_norm: 1.0\n")
    return folder.file("spec.yaml", text + more)


def undisturbed():
    """The hash that the run ends with in plaintext."""
    def train():
        with Folder() as folder:
            metrics = folder.file("metrics.jsonl")
            weir("train", write_spec(folder), "--out", folder.file("out"), "--metrics", metrics, "--threads", 1)
            return done_event(metrics)["weights_sha256"]
    return kept("tls-undisturbed", train)


@contextlib.contextmanager
def secured(folder, authority, servers=2, workers=2):
    """A cluster each of whose processes has the certificate of its own role."""
    with Cluster(folder, servers=0, workers=0, options=("--tls", authority.folder("coordinator"))) as cluster:
        cluster.server_options = ("--tls", authority.folder("server"))
        for _ in range(servers):
            cluster.add_server()
        for _ in range(workers):
            cluster.add_worker(options=("--tls", authority.folder("worker")))
        yield cluster


def ports_of(process):
    """Where a process listens, on addresses of IPv4 and IPv6."""
    found, sockets = set(), set()
    for number in os.listdir(f"/proc/{process.child.pid}/fd"):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(f"/proc/{process.child.pid}/fd/{number}"))
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{process.child.pid}/net/{table}") as rows:
            for row in list(rows)[1:]:
                words = row.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                    found.add(int(words[1].rsplit(":", 1)[1], 16))
    return found


def said_in_plaintext(port):
    """What a port answers to HTTP/2 without TLS, until it hangs up."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client, contextlib.suppress(ConnectionError):
        client.sendall(PREFACE)
        while piece := client.recv(4096):
            heard += piece
    return heard


def client_output(port, *options):
    """What openssl s_client prints that says HTTP/2 to a port, until the port has answered or has hung up."""
    client = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-alpn", "h2", "-nocommands", *options],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    heard = b""
    with client:
        with contextlib.suppress(BrokenPipeError):
            client.stdin.write(PREFACE)
            client.stdin.flush()
        while SETTINGS not in heard and (piece := client.stdout.read1(4096)):
            heard += piece
        with contextlib.suppress(BrokenPipeError):
            client.stdin.close()  # it ends, and writes its session down
        heard += client.stdout.read()
    return heard


def said_by_tls(port, *options):
    """What a port answers to HTTP/2 through openssl s_client."""
    return client_output(port, "-quiet", "-no_ign_eof", *options)


def shown(folder):
    """s_client's options for a certificate folder."""
    return ("-CAfile", folder + "/ca.pem", "-cert", folder + "/cert.pem", "-key", folder + "/key.pem")


def grpcio(port, name, *files):
    """(exit status, what a stock gRPC client says) of the health of what listens there."""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("the peers' environment is missing")
    done = subprocess.run([PEER_PYTHON, os.path.join(HERE, "peer_tls.py"), f"127.0.0.1:{port}", name, *files],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, (done.stdout + done.stderr).split()[-1]  # grpcio has a log of its own


def files_of(folder):
    return folder + "/ca.pem", folder + "/cert.pem", folder + "/key.pem"


def follow(cluster, authority, spec, metrics):
    weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address, "--tls", authority.folder("client"))
    return done_event(metrics)["weights_sha256"]


def test_a_run_over_tls_ends_in_the_bits_of_one_in_plaintext():
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority) as cluster:
            assert follow(cluster, authority, write_spec(folder), folder.file("metrics.jsonl")) == undisturbed()


def test_workers_with_stages_of_one_model_talk_over_tls():
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=1) as cluster:
            spec = write_spec(folder, "workers: {stages: 2, min: 2}\n")
            assert follow(cluster, authority, spec, folder.file("metrics.jsonl")) == undisturbed()


def test_every_port_of_every_process_takes_only_clients_with_a_certificate():
    with Folder() as folder:
        authority, other = Authority(folder), Authority(folder, "other")
        names = "URI:spiffe://weir/client/a/viewer/c,DNS:client.weir"
        past, future = (authority.issue(folder.file(name), names, days) for name, days in (("past", (-9, -2)), ("future", (2, 9))))
        with secured(folder, authority, servers=1, workers=1) as cluster:
            worker = cluster.workers[0]
            wait_for(lambda: " listening address=" in worker.output(), "the worker's port")
            processes = {"coordinator": cluster.coordinator, "server": cluster.servers[0][0], "worker": worker}
            for role, process in processes.items():
                ports = ports_of(process)
                assert len(ports) == 1, (role, ports)
                port = ports.pop()
                assert SETTINGS in said_by_tls(port, *shown(authority.folder("client"))), role
                assert not said_in_plaintext(port).startswith(b"\0\0"), f"{role}: HTTP/2 without TLS"
                ca = ("-CAfile", authority.path + "/ca.pem")
                for who, options in (("no certificate", ca), ("another authority's", shown(other.folder("client"))),
                                     ("an expired one", shown(past)), ("one that is not yet valid", shown(future)),
                                     ("one that signed itself", (*ca, "-cert", other.path + "/ca.pem", "-key", other.path + "/ca-key.pem"))):
                    assert said_by_tls(port, *options) == b"", f"{role}: {who} is let in"


def test_stock_grpc_clients_are_served_by_certificate_alone():
    with Folder() as folder:
        authority, other = Authority(folder), Authority(folder, "other")
        with secured(folder, authority, servers=0, workers=0) as cluster:
            port, own, theirs = int(cluster.address.rsplit(":", 1)[1]), authority.folder("client"), other.folder("client")
            assert grpcio(port, "coordinator.weir", *files_of(own)) == (0, "SERVING")
            assert grpcio(port, "member.weir", *files_of(own)) == (0, "SERVING")
            assert grpcio(port, "server.weir", *files_of(own)) == (1, "UNAVAILABLE")
            assert grpcio(port, "coordinator.weir") == (1, "UNAVAILABLE")
            assert grpcio(port, "coordinator.weir", own + "/ca.pem") == (1, "UNAVAILABLE")
            assert grpcio(port, "coordinator.weir", own + "/ca.pem", *files_of(theirs)[1:]) == (1, "UNAVAILABLE")
            assert grpcio(port, "coordinator.weir", *files_of(theirs)) == (1, "UNAVAILABLE")


def test_no_session_is_resumed():
    """Else a certificate that has expired meanwhile would not be looked at."""
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=0, workers=0) as cluster:
            port, own = int(cluster.address.rsplit(":", 1)[1]), shown(authority.folder("client"))
            for version in ("-tls1_2", "-tls1_3"):
                session = folder.file("session" + version)
                assert b"New, TLSv1" in client_output(port, version, *own, "-sess_out", session)
                assert os.path.getsize(session) > 0, "there is no session that could be resumed"
                again = client_output(port, version, *own, "-sess_in", session)
                assert b"New, TLSv1" in again and b"Reused, TLSv1" not in again, again


def refused(*arguments, says, status=3, **options):
    done = weir(*arguments, status=status, **options)
    assert len(done.stderr.splitlines()) == 1 and says in done.stderr, done.stderr
    assert "weir-server --role=all" not in done.stderr, "a hint at the address, when TLS is the cause"


def subject(authority):
    return re.search("CN ?= ?(.*)", openssl("x509", "-in", authority.path + "/ca.pem", "-noout", "-subject")).group(1).strip()


def shows(authority, role):
    """What is said of the certificate that a process of the role shows."""
    end = re.search("^valid until +(.*)$", weir("certs", "show", authority.folder(role)).stdout, re.MULTILINE).group(1)
    return f"it shows the certificate of spiffe://weir/{role}/{role}, signed by '{subject(authority)}', valid until {end}"


def test_the_client_says_that_tls_is_the_cause():
    with Folder() as folder:
        authority, other = Authority(folder), Authority(folder, "other")
        weir("certs", "issue", "--ca", other.path, "--role", "client", strange := folder.file("strange"))
        weir("certs", "trust", "--ca", authority.path, strange)
        with secured(folder, authority, servers=1, workers=0) as cluster, \
                Cluster(folder, servers=0, workers=0, store="file://" + folder.file("plain")) as plain:
            where = ("--coordinator", cluster.address)
            refused("runs", *where, says="does one end lack --tls")
            refused("runs", *where, says=shows(authority, "coordinator") + ": give --tls DIR here")
            refused("runs", *where, "--tls", other.folder("client"), says="no authority of our ca.pem has signed its certificate")
            refused("runs", *where, "--tls", other.folder("client"), says=shows(authority, "coordinator") + ": add that authority to "
                    f"{other.folder('client')}/ca.pem by `weir certs trust`, if you trust it")
            refused("runs", "--coordinator", plain.address, "--tls", authority.folder("client"), says="it does not speak TLS")
            server = ("--coordinator", cluster.servers[0][1], "--tls", authority.folder("client"))
            refused("runs", *server, says="its certificate is not of the role that is needed")
            refused("runs", *server, says=shows(authority, "server") + ": a coordinator is wanted there: is the address right?")
            for address in (cluster.address, cluster.servers[0][1]):
                weir("health", address, "--tls", authority.folder("client"))
                refused("health", address, says="does one end lack --tls")
            refused("health", cluster.address, "--tls", strange, says=f"it is good: does its ca.pem have '{subject(other)}', which signed ours?")
            own = {"env": {**os.environ, "WEIR_TLS": authority.folder("client")}}
            weir("runs", *where, **own)
            refused("runs", *where, "--tls", other.folder("client"), says="no authority of our ca.pem", **own)


def test_members_join_only_with_a_certificate_and_a_coordinator_that_has_one():
    """Each tells why in its log, and goes on trying."""
    with Folder() as folder, contextlib.ExitStack() as stack:
        authority, other = Authority(folder), Authority(folder, "other")
        cluster = stack.enter_context(secured(folder, authority, servers=1, workers=1))
        plain = stack.enter_context(Cluster(folder, servers=0, workers=0, store="file://" + folder.file("plain")))

        def worker(address, *options):
            return stack.enter_context(Process(program("weir-worker"), "--coordinator", address, "--threads", 1, *options))

        def server(address, *options):
            process, _ = start_announced(program("weir-server"), "--role=parameters", "--listen", own_address(), "--coordinator",
                                         address, "--store", "file://" + folder.file("store"), *options)
            return stack.enter_context(process)

        for start, role in ((worker, "worker"), (server, "server")):
            for options, address, says in (((), cluster.address, "does one end lack --tls"),
                                           (("--tls", other.folder(role)), cluster.address, "no authority of our ca.pem"),
                                           (("--tls", authority.folder(role)), plain.address, "it does not speak TLS"),
                                           (("--tls", authority.folder(role)), cluster.servers[0][1], "not of the role that is needed")):
                process = start(address, *options)
                wait_for(lambda: " not_joined " in process.output() and says in process.output(), f"a {role} that says: {says}")
                assert ("it shows the certificate of spiffe://weir/" in process.output()) == (address != plain.address), process.output()
        shows = ("--coordinator", cluster.address, "--tls", authority.folder("client"), "--json")
        for role in ("worker", "server"):
            wait_for(lambda role=role: weir(role + "s", *shows).stdout.count('"pid"') == 1, f"the one {role}")
        assert weir("workers", "--coordinator", plain.address, "--json").stdout.count('"pid"') == 0


def test_certificates_that_cannot_be_used_stop_every_program_at_once():
    with Folder() as folder:
        authority = Authority(folder)
        past = authority.issue(folder.file("past"), "URI:spiffe://weir/all/a,DNS:all.weir", (-9, -2))
        mixed = shutil.copytree(authority.folder("all"), folder.file("mixed"))
        shutil.copyfile(authority.folder("server") + "/key.pem", mixed + "/key.pem")
        spec = write_spec(folder)
        programs = {"weir-server": (program("weir-server"), "--store", "file://" + folder.file("store")),
                    "weir-worker": (program("weir-worker"), "--threads", "1"), "weir": (program("weir"), "runs"),
                    "weir train": (program("weir"), "train", spec, "--out", folder.file("out"))}
        for name, command in programs.items():
            cases = [(folder.file("none"), "No such file or directory"), (past, "past/cert.pem: it was valid until"),
                     (mixed, "mixed/key.pem: this key is not that of")]
            cases += [(authority.folder("client"), "is that of the client 'client': a certificate of the role")] if name != "weir" else []
            for path, says in cases:
                tries = [((*command, "--tls", path), os.environ)]
                tries += [(command, {**os.environ, "WEIR_TLS": path})] if name != "weir train" else []
                for arguments, environment in tries:
                    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
                    assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1, (name, says, done)
        for role, other in (("coordinator", "server"), ("parameters", "coordinator"), ("all", "server")):
            done = subprocess.run([*programs["weir-server"], f"--role={role}", "--tls", authority.folder(other)], capture_output=True,
                                  text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 2 and f"is that of the {other}" in done.stderr, done


def test_a_private_cluster_is_encrypted_only_when_asked():
    """WEIR_TLS is for the clusters of others: a private one needs nothing."""
    with Folder() as folder:
        authority, spec = Authority(folder), write_spec(folder)
        for name, options, variables in (("plain", (), {"WEIR_TLS": authority.folder("client")}),
                                         ("tls", ("--tls", authority.folder("all")), {})):
            metrics = folder.file(name + ".jsonl")
            weir("train", spec, "--out", folder.file(name), "--metrics", metrics, "--threads", 1, "--servers", 2, "--workers", 2,
                 *options, env={**os.environ, **variables})
            assert done_event(metrics)["weights_sha256"] == undisturbed(), name
            for log in ("coordinator", "server-1", "server-2"):
                with open(folder.file(f"{name}/logs/{log}.log")) as text:
                    assert re.search(rf" serving .* tls={int(name == 'tls')} ", text.read()), (name, log)


def test_nccl_whose_ports_are_its_own_is_refused_beside_tls():
    environment = simulated_gpus()
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=1, workers=0) as cluster:
            for number in range(2):
                cluster.add_worker(options=("--device", f"cuda:{number}", "--tls", authority.folder("worker")), env=environment)
            spec = write_spec(folder)
            text = open(spec).read().replace("  seed: 3\n", "  seed: 3\n  collective: nccl\n")
            where = ("--coordinator", cluster.address, "--tls", authority.folder("client"))
            run = weir("submit", folder.file("nccl.yaml", text), *where).stdout.strip()
            says = "train.collective nccl opens ports of its own, which --tls does not cover"
            wait_for(lambda: says in weir("status", run, *where).stdout, "the refusal of both workers in the run's message")


if __name__ == "__main__":
    main(globals())
