"""What a certificate lets its holder do: each method of each service, called with each kind of certificate by a client that is
no part of Weir, and what our own client says."""
import os
import re
import subprocess

from certificates import Authority
from harness import PATIENCE, PEER_PYTHON, ROOT, Folder, Skip, main, wait_for, weir
from test_tls import secured, write_spec

HERE = os.path.dirname(os.path.abspath(__file__))
HOLDERS = ("coordinator", "server", "worker", "all", "store", "viewer", "submitter", "operator")
HELLO = {"server": "0a0708012203783a31", "worker": "0a020802"}  # of a server at x:1, of a worker
# What each may call; the paths without weir's own name. Written down here a second time, so that no row changes unnoticed.
ANYBODY = {"grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch",
           "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
           "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}
MEMBERS = {"Cluster/Join", "Cluster/FetchModel", "Cluster/FetchPieces"}
SERVERS = {"Parameters/Sums"}
WORKERS = {"Cluster/FetchLayout", "Cluster/FetchBatch", "Parameters/Push", "Parameters/Pull", "Parameters/Versions", "Parameters/Share",
           "Peers/Send"}
VIEWERS = {"Training/" + name for name in ("ListRuns", "GetRun", "Watch", "ListCheckpoints", "ListSweeps", "GetSweep", "ListWorkers",
                                           "ListServers", "GetOverview", "GetSeries", "GetModel", "GetPieces", "GetWeights", "GetLayout", "GetBatch")}
SUBMITTERS = {"Training/" + name for name in ("Submit", "ForkRun", "Cancel", "Pause", "Stop", "SetRun", "Resume", "Verify",
                                              "ExtendSweep", "DeleteSweep", "StopSweep", "TraceRun")}
OPERATORS = {"Training/" + name for name in ("DrainWorker", "DrainServer", "CollectGarbage", "ReadmitWorker")}
EVERY = ANYBODY | MEMBERS | SERVERS | WORKERS | VIEWERS | SUBMITTERS | OPERATORS
ALLOWED = {"coordinator": ANYBODY, "server": ANYBODY | MEMBERS | SERVERS, "worker": ANYBODY | MEMBERS | WORKERS, "all": EVERY, "store": ANYBODY,
           "viewer": ANYBODY | VIEWERS, "submitter": ANYBODY | VIEWERS | SUBMITTERS,
           "operator": ANYBODY | VIEWERS | SUBMITTERS | OPERATORS}


def methods():
    """The paths of all methods that Weir speaks."""
    with open(os.path.join(ROOT, "common/rpc/methods.def")) as table:
        return set(re.findall(r'^METHOD\(\w+, "/(?:weir\.)?([^"]+)"', table.read(), re.MULTILINE))


def issued(folder, authority, holder):
    """The folder of a certificate of that kind."""
    if holder in ("coordinator", "server", "worker", "all", "store"):
        return authority.folder(holder)
    out = folder.file(holder)
    if not os.path.exists(out):
        weir("certs", "issue", "--ca", authority.path, "--role", "client", "--access", holder, out)
    return out


def calls(certificate, *wanted):
    """(address, path, bytes) of each call -> [(path, status, details)]"""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("the peers' environment is missing")
    words = []
    for address, path, message in wanted:
        words += ["member.weir", address, "/" + path if path.startswith("grpc.") else "/weir." + path, message]
    done = subprocess.run([PEER_PYTHON, os.path.join(HERE, "peer_roles.py"),
                           *(os.path.join(certificate, name) for name in ("ca.pem", "cert.pem", "key.pem")), *words],
                          capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    said = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(said) == len(wanted), done
    return [(path.removeprefix("/").removeprefix("weir."), status, details) for path, status, details in said]


def address_of(worker):
    return re.search(r" listening address=(\S+)", worker.output())


def test_each_method_is_for_those_whose_certificates_say_so():
    assert methods() == EVERY
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=1, workers=1) as cluster:
            worker = wait_for(lambda: address_of(cluster.workers[0]), "the worker's port").group(1)
            where = {"Parameters": cluster.servers[0][1], "Peers": worker}
            wanted = [(where.get(path.split("/")[0], cluster.address), path, "-") for path in sorted(EVERY)]
            wanted += [(address, path, "-") for address in where.values() for path in sorted(ANYBODY)]
            for holder in HOLDERS:
                for path, status, details in calls(issued(folder, authority, holder), *wanted):
                    is_denied = status == "PERMISSION_DENIED" and "ticket" not in details  # for which one needs the role first
                    assert is_denied != (path in ALLOWED[holder]), (holder, path, status, details)
                    assert not is_denied or "the certificate is that of spiffe://weir/" in details, details


def test_a_certificate_that_names_nobody_calls_nothing():
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=0, workers=0) as cluster:
            for number, names in enumerate(("DNS:client.weir", "URI:spiffe://weir/worker/w,URI:spiffe://weir/server/s",
                                            "URI:spiffe://other/worker/w", "URI:spiffe://weir/client/a/root/c")):
                certificate = authority.issue(folder.file(f"nobody-{number}"), names)
                for path, status, details in calls(certificate, (cluster.address, "Training/ListRuns", "-"),
                                                   (cluster.address, "grpc.health.v1.Health/Check", "-")):
                    assert status == "PERMISSION_DENIED" and "names no member or client" in details, (names, path, status, details)


def test_a_hello_is_held_to_its_certificate():
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=0, workers=0) as cluster:
            for said, hello in HELLO.items():
                for shown in ("server", "worker", "all"):
                    (_, status, details), = calls(authority.folder(shown), (cluster.address, "Cluster/Join", hello))
                    if shown in (said, "all"):
                        assert status == "OK", (said, shown, status, details)
                    else:
                        assert status == "PERMISSION_DENIED", (said, shown, status, details)
                        assert f"the hello is that of a {said}, the certificate that of the {shown} '{shown}'" in details, details


def test_the_client_says_which_access_is_needed():
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=1, workers=1) as cluster:
            def run(holder, *arguments, status=0):
                return weir(*arguments, "--coordinator", cluster.address, "--tls", issued(folder, authority, holder), status=status)

            spec = write_spec(folder)
            for holder, arguments, needed in (("viewer", ("submit", spec), "submitter or operator"),
                                              ("worker", ("runs",), "clients"), ("submitter", ("drain", "worker-1"), "operator")):
                done = run(holder, *arguments, status=2)
                assert len(done.stderr.splitlines()) == 1 and re.search(f"is for .*{needed}: the certificate is that of", done.stderr), done
            name = run("submitter", "submit", spec).stdout.strip()
            wait_for(lambda: '"done"' in run("viewer", "status", name, "--json").stdout.lower(), "the end of the run")
            run("operator", "drain", "worker-1")


def test_every_change_leaves_a_line_that_says_who_made_it():
    with Folder() as folder:
        authority = Authority(folder)
        with secured(folder, authority, servers=0, workers=0) as cluster:
            def run(holder, *arguments, status=0):
                return weir(*arguments, "--coordinator", cluster.address, "--tls", issued(folder, authority, holder), status=status)

            def line(outcome, holder, method, names):
                return (rf' info audit {outcome} who=spiffe://weir/client/\S+/{holder}/\S+ method=/weir.Training/{method} '
                        rf'{names} peer=ipv4:127.0.0.1:\d+ code=\w+\n')

            name = run("submitter", "submit", write_spec(folder)).stdout.strip()
            run("submitter", "set", name, "priority=3")
            run("viewer", "status", name)
            run("submitter", "cancel", name)
            run("operator", "drain", 'worker-"1"\n2 code=OK', status=2)
            said = cluster.coordinator.output()
            for wanted in (line("done", "submitter", "Submit", f'of="" reply="{name}"'), line("done", "submitter", "SetRun", f'of="{name}" reply=""'),
                           line("done", "submitter", "Cancel", f'of="{name}" reply=""'),
                           line("refused", "operator", "Drain\\w+", r'of="worker-\\"1\\"\\x0a2 code=OK" reply=""')):
                assert re.search(wanted, said), (wanted, said)
            assert " audit " not in "".join(row for row in said.splitlines() if "GetRun" in row or "viewer" in row), said


if __name__ == "__main__":
    main(globals())
