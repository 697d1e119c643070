"""Without certificates connections stay on this machine: what leads beyond it is refused at once, unless --insecure says that
plaintext may go there, and then the cluster tells. 0.0.0.0 is an address of this machine that counts as one beyond it."""
import contextlib
import os
import socket
import subprocess

from certificates import Authority
from harness import (PATIENCE, Cluster, Folder, Process, done_event, health, main, own_address, program, reserve_port,
                     start_announced, wait_for, weir)
from redis_servers import Redis

MODEL = ("mlp", "--input", "1,28,28", "--hidden", "30", "--classes", "10", "--seed", "5")
WARNING = " warn tls insecure "
REASON = "leads beyond this machine, and there are no certificates: give --tls DIR, which `weir certs init` makes, or --insecure"


def everywhere():
    return f"0.0.0.0:{reserve_port()}"


def write_spec(folder):
    folder.small_data(240, 48)
    return folder.small_spec(folder.model(*MODEL), 2, 4, 2)


def test_what_leads_beyond_this_machine_is_refused_at_once():
    with Folder() as folder:
        server = (program("weir-server"), "--store", "file://" + folder.file("store"))
        worker, client = (program("weir-worker"), "--threads", "1"), program("weir")
        here, other = "127.0.0.1:7070", "host.example:7070"
        cases = [((*server, "--listen", "0.0.0.0:0"), "0.0.0.0:0"), ((*server, "--listen", "[::]:0"), "[::]:0"),
                 ((*server, "--listen", "127.0.0.1:0", "--advertise", other), other),
                 ((*server, "--role=parameters", "--listen", "127.0.0.1:0", "--coordinator", f"{here},{other}"), other),
                 ((*worker, "--coordinator", f"{here},{other}"), other), ((*worker, "--listen", "0.0.0.0:0"), "0.0.0.0:0"),
                 ((*worker, "--advertise", other), other), ((client, "runs", "--coordinator", other), other),
                 ((client, "status", "a", "--coordinator", f"{here},{other}"), other), ((client, "health", other), other)]
        for command, address in cases:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 2 and f"{address} {REASON}" in done.stderr and len(done.stderr.splitlines()) == 1, done
            both = subprocess.run([*command, "--insecure", "--tls", "x"], capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert both.returncode == 2 and "--tls and --insecure exclude each other" in both.stderr, both
        for command in (server, (*worker, "--coordinator", here), (client, "runs")):
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False,
                                  env={**os.environ, "WEIR_INSECURE": "yes"})
            assert done.returncode == 2 and "WEIR_INSECURE is 1, 0 or nothing, not 'yes'" in done.stderr, done
        weir("runs", "--coordinator", "nobody.invalid:7070", "--insecure", status=3)


def test_a_store_on_another_machine_is_not_asked_in_plaintext():
    """Unless --insecure says that it may be."""
    with Folder() as folder, Redis(folder) as redis:
        spec, away = write_spec(folder), f"redis://0.0.0.0:{redis.port}"
        says = f"store: 0.0.0.0:{redis.port}: plaintext would lead beyond this machine: use TLS (rediss://), or --insecure"
        server, client = (program("weir-server"), "--listen", "127.0.0.1:0"), program("weir")
        train = (client, "train", spec, "--threads", "1", "--out", folder.file("out"), "--store", away)
        for command in ((*server, "--store", away), (*server, "--wait-store", "0", "--store", away), train,
                        (client, "checkpoints", "a", "--store", away), (client, "runs", "--store", away)):
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1, done
        both = subprocess.run((*train, "--insecure", "--tls", "x"), capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert both.returncode == 2 and "--tls and --insecure exclude each other" in both.stderr, both
        assert not os.path.exists(folder.file("out"))
        weir(*train[1:], "--insecure")
        assert weir("runs", "--store", away, "--insecure").stdout.count("\n") >= 2


def test_a_cluster_with_insecure_works_beyond_this_machine_and_tells():
    """By the option and by the variable."""
    with Folder() as folder:
        spec = write_spec(folder)
        with Cluster(folder, servers=0, workers=0, listen=everywhere(), options=("--insecure",)) as cluster:
            away = cluster.address.replace("127.0.0.1", "0.0.0.0")
            own = {"env": {**os.environ, "WEIR_INSECURE": "1"}}
            listen = everywhere()
            server, _ = cluster.start_server(listen=listen, advertise=listen, coordinator=away, **own)
            worker = cluster.add_worker(coordinator=away, options=("--insecure",))
            metrics = folder.file("metrics.jsonl")
            weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", away, **own)
            assert done_event(metrics)["weights_sha256"]
            for process in (cluster.coordinator, server, worker):
                assert process.output().count(WARNING) == 1, process.output()
            for address in (away, listen):
                first, second = health(address, "--insecure").splitlines()
                assert first == "serving" and second.startswith("insecure: "), (address, first, second)
            run = cluster.json("runs")[0]["run"]
            assert cluster.json("status", run)["insecure"] is True
            assert "\ninsecure     connections between machines are plaintext\n" in weir("status", run, "--coordinator",
                                                                                        cluster.address).stdout


def test_what_stays_on_this_machine_needs_nothing_and_tells_nothing():
    """WEIR_INSECURE is for the clusters of others: a private one does not take it."""
    with Folder() as folder:
        spec, out = write_spec(folder), folder.file("out")
        weir("train", spec, "--out", out, "--threads", 1, env={**os.environ, "WEIR_INSECURE": "1"})
        for log in ("coordinator", "server-1", "worker-1"):
            with open(os.path.join(out, "logs", log + ".log")) as text:
                assert WARNING not in text.read(), log
        with Cluster(folder, servers=1, workers=1) as cluster:
            weir("submit", spec, "--follow", "--coordinator", cluster.address)
            run = cluster.json("runs")[0]["run"]
            assert cluster.json("status", run)["insecure"] is False
            assert "insecure" not in weir("status", run, "--coordinator", cluster.address).stdout
            for address in (cluster.address, cluster.servers[0][1]):
                assert health(address) == "serving\n"


def test_certificates_need_no_insecure():
    with Folder() as folder:
        authority = Authority(folder)
        options = ("--tls", authority.folder("coordinator"))
        own = {"env": {**os.environ, "WEIR_INSECURE": "1"}}
        with Cluster(folder, servers=0, workers=0, listen=everywhere(), options=options, **own) as cluster:
            away = cluster.address.replace("127.0.0.1", "0.0.0.0")
            assert health(away, "--tls", authority.folder("client")) == "serving\n"
            assert WARNING not in cluster.coordinator.output()


def test_a_worker_without_insecure_refuses_servers_beyond_its_machine():
    """The coordinator is on its own, so it has joined; the run's message says why it does not compute."""
    with Folder() as folder:
        spec = write_spec(folder)
        with Cluster(folder, servers=0, workers=0, options=("--insecure",)) as cluster:
            listen = everywhere()
            cluster.start_server(listen=listen, advertise=listen, env={**os.environ, "WEIR_INSECURE": "1"})
            cluster.add_worker()
            run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()
            says = f"{listen}: it {REASON}"
            wait_for(lambda: says in weir("status", run, "--coordinator", cluster.address).stdout, "the worker's refusal")


def test_a_coordinator_without_insecure_takes_no_member_beyond_its_machine():
    with Folder() as folder, contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(folder, servers=0, workers=0))
        listen = everywhere()
        server, _ = start_announced(program("weir-server"), "--role=parameters", "--listen", listen, "--advertise", listen,
                                    "--coordinator", cluster.address, "--store", cluster.store, "--insecure")
        stack.enter_context(server)
        worker = stack.enter_context(Process(program("weir-worker"), "--coordinator", cluster.address, "--threads", 1, "--listen",
                                             own_address(), "--advertise", listen, "--insecure"))
        own = f"{socket.gethostname()}:{listen.rsplit(':', 1)[1]}"  # what a worker makes of 0.0.0.0
        for process, address in ((server, listen), (worker, own)):
            wait_for(lambda: f"takes no member at its address: {address} {REASON}" in process.output(), "the refusal")
        assert cluster.json("servers") == [] and cluster.json("workers") == []


if __name__ == "__main__":
    main(globals())
