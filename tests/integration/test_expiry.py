"""Certificates that end, and names that are denied, while processes run: who has one is out, also on connections that are open."""
import contextlib
import os
import subprocess

from certificates import Authority, point_to
from gate import Gate
from harness import PATIENCE, Cluster, Folder, Process, done_event, main, newest_step, program, wait_for, weir
from test_tls import SETTINGS, client_output, follow, secured, shown, undisturbed, write_spec

DAY_S = 24 * 3600
NAMES = "URI:spiffe://weir/{0}/{0},DNS:{0}.weir,DNS:member.weir"


def deny(certificates, text):
    with open(certificates + "/denied.txt.new", "w") as denied:
        denied.write(text)
    os.rename(certificates + "/denied.txt.new", certificates + "/denied.txt")


def short_lived(folder, authority, start):
    """(folder's link by role, what start(link by role) returns), of certificates that end soon, but not before start has returned:
    it raises if they did, and certificates that live twice as long are tried."""
    seconds = 8
    while True:
        links = {}
        for role in ("server", "worker"):
            certificate = authority.issue(folder.file(f"{role}-{seconds}"), NAMES.format(role), (-1, seconds / DAY_S))
            links[role] = point_to(folder.file(role), certificate)
        try:
            return links, start(links)
        except AssertionError:
            assert seconds < PATIENCE, "they did not start"
            seconds *= 2


def joined_before_the_end(role, process):
    wait_for(lambda: " joined coordinator=" in process.output() or "was valid until" in process.output() or
             process.child.poll() is not None, f"the {role} to join")
    assert " joined coordinator=" in process.output()


def joined_since(word, process):
    """Whether it has joined after it said that. Before, one that stands still for long may have joined more than once."""
    _, said, after = process.output().partition(word)
    return bool(said) and " joined coordinator=" in after


def test_members_whose_certificates_are_renewed_in_time_outlive_them():
    """The connections that they had opened with the old ones are refused at that second; they open others, by the new ones."""
    with Folder() as folder, contextlib.ExitStack() as stack:
        authority = Authority(folder)
        cluster = stack.enter_context(secured(folder, authority, servers=0, workers=0))

        def start(links):
            with contextlib.ExitStack() as members:
                cluster.server_options = ("--tls", links["server"])
                server, address = cluster.start_server()
                worker = cluster.add_worker(options=("--tls", links["worker"]))
                members.callback(server.__exit__)
                members.callback(worker.__exit__)
                for role, process in (("server", server), ("worker", worker)):
                    joined_before_the_end(role, process)
                members.pop_all()
                cluster.servers.append((server, address))
                return {"server": server, "worker": worker}

        links, processes = short_lived(folder, authority, start)
        for role, link in links.items():
            point_to(link, authority.folder(role))
        spec = write_spec(folder)
        assert follow(cluster, authority, spec, folder.file("before.jsonl")) == undisturbed()
        for role, process in processes.items():
            says = f"the certificate of spiffe://weir/{role}/{role} was valid until"
            lost = wait_for(lambda: process.output().partition(says)[2], f"the end of the {role}'s certificate")
            wait_for(lambda: joined_since(says, process), f"the {role} to join again {lost}")
        assert follow(cluster, authority, spec, folder.file("after.jsonl")) == undisturbed()


def test_a_member_whose_certificate_ends_is_no_member():
    with Folder() as folder, contextlib.ExitStack() as stack:
        authority = Authority(folder)
        cluster = stack.enter_context(secured(folder, authority, servers=0, workers=0))

        def start(links):
            with contextlib.ExitStack() as members:
                worker = members.enter_context(Process(program("weir-worker"), "--coordinator", cluster.address, "--threads", 1,
                                                       "--tls", links["worker"]))
                joined_before_the_end("worker", worker)
                members.pop_all()
                return worker

        _, worker = short_lived(folder, authority, start)
        stack.push(worker)
        assert " certificate_ends " in worker.output(), "the worker does not warn"
        says = "the certificate of spiffe://weir/worker/worker was valid until"
        wait_for(lambda: " lost " in worker.output() and says in worker.output(), "the worker to lose the coordinator")
        ended = says
        assert cluster.coordinator.output().count(" certificate_refused ") == 1 and says in cluster.coordinator.output()
        says = f'{folder.file("worker")}/cert.pem: it was valid until'
        wait_for(lambda: " not_joined " in worker.output() and says in worker.output(), "the worker to say why it is refused")
        assert not joined_since(ended, worker)


def ends_in_mid_run(seconds):
    """False: the worker's certificate, which lives for so long, had ended before the run stood."""
    with Folder() as folder, contextlib.ExitStack() as stack:
        authority, gate = Authority(folder), Gate(folder)
        cluster = stack.enter_context(Cluster(folder, servers=0, workers=0, gate=gate, options=("--tls", authority.folder("coordinator"))))
        cluster.server_options = ("--tls", authority.folder("server"))
        cluster.add_server()
        cluster.add_worker(options=("--tls", authority.folder("worker")))
        cluster.all_join()
        client, metrics, says = ("--coordinator", cluster.address, "--tls", authority.folder("client")), folder.file("metrics.jsonl"), "was valid until"
        spec = write_spec(folder, "workers: {min: 2}\n")
        certificate = authority.issue(folder.file("guest"), "URI:spiffe://weir/worker/guest,DNS:worker.weir,DNS:member.weir", (-1, seconds / DAY_S))
        guest = cluster.add_worker(options=("--tls", certificate))
        gate.stop_at(1)
        follower = stack.enter_context(Process(program("weir"), "submit", spec, "--follow", "--metrics", metrics, *client))
        wait_for(lambda: newest_step(metrics) >= 1 or says in guest.output(), "the run to stand")
        if newest_step(metrics) < 1:
            return False
        wait_for(lambda: " lost " in guest.output() and says in guest.output(), "the end of the certificate")
        gate.open()
        assert follower.wait() == 0, follower.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == undisturbed()
        assert not joined_since(says, guest)
        return True


def test_a_run_goes_on_without_a_worker_whose_certificate_ends():
    seconds = 8
    while not ends_in_mid_run(seconds):
        assert seconds < PATIENCE, "no certificate lives long enough"
        seconds *= 2


def test_a_run_goes_on_without_a_worker_whose_name_is_denied():
    with Folder() as folder:
        authority = Authority(folder)
        guest = folder.file("guest")
        weir("certs", "issue", "--ca", authority.path, "--role", "worker", "--name", "gpu-7", guest)
        with secured(folder, authority, servers=1, workers=1) as cluster:
            worker, own = cluster.add_worker(options=("--tls", guest)), authority.folder("coordinator")
            wait_for(lambda: " joined coordinator=" in worker.output(), "the worker to join")
            deny(own, "worker/gpu-7\n")
            says = "the certificate of spiffe://weir/worker/gpu-7 is denied: its name is in denied.txt here"
            wait_for(lambda: " lost " in worker.output() and says in worker.output(), "the worker to be denied")
            deny(own, "worker/gpu-7\nnonsense\n")
            wait_for(lambda: "denied.txt:2: 'spiffe://weir/nonsense' names no member" in cluster.coordinator.output(), "a word on nonsense")
            spec = write_spec(folder)
            assert follow(cluster, authority, spec, folder.file("metrics.jsonl")) == undisturbed()
            assert not joined_since(says, worker)
            done = weir("certs", "show", own, status=2)
            assert len(done.stderr.splitlines()) == 1 and "denied.txt:2: 'spiffe://weir/nonsense'" in done.stderr, done
            deny(own, "")
            wait_for(lambda: joined_since(says, worker), "the worker to join once it is not denied")


def test_who_denies_a_coordinators_name_believes_it_no_more():
    """On connections that are open, and in the handshake of those that come. The certificates are openssl's."""
    with Folder() as folder:
        authority = Authority(folder)
        stock = authority.issue(folder.file("stock"), NAMES.format("coordinator").replace("coordinator/coordinator", "coordinator/lost"))
        client, own, here = authority.folder("client"), authority.folder("worker"), "TLS: the name of its certificate is in denied.txt here"
        with Cluster(folder, servers=0, workers=0, options=("--tls", stock)) as cluster:
            worker = cluster.add_worker(options=("--tls", own))
            wait_for(lambda: " joined coordinator=" in worker.output(), "the worker to join")
            asks = ("runs", "--coordinator", cluster.address, "--tls", client)
            weir(*asks)
            deny(client, "coordinator/lost\n")
            done = weir(*asks, status=3)
            assert len(done.stderr.splitlines()) == 1 and f"{here}; it shows the certificate of spiffe://weir/coordinator/lost, " in done.stderr, done
            assert f": {client}/denied.txt has that name: take its line out if you trust its holder again" in done.stderr, done
            deny(own, "coordinator/lost\n")
            says = "TLS: the certificate of spiffe://weir/coordinator/lost is denied: its name is in denied.txt here"
            wait_for(lambda: " lost " in worker.output() and says in worker.output(), "the worker to leave")
            wait_for(lambda: " not_joined " in worker.output() and here in worker.output(), "the worker to be refused no more, but to refuse")
            deny(own, "coordinator/found\n")
            wait_for(lambda: joined_since(says, worker), "the worker to join again")


def test_who_denies_a_servers_name_pulls_nothing_from_it():
    """The run waits, and ends in its hash once the server is believed again."""
    with Folder() as folder:
        authority, gate, metrics = Authority(folder), Gate(folder), folder.file("metrics.jsonl")
        own = authority.folder("worker")
        with Cluster(folder, servers=0, workers=0, gate=gate, options=("--tls", authority.folder("coordinator"))) as cluster:
            cluster.server_options = ("--tls", authority.folder("server"))
            cluster.add_server()
            worker = cluster.add_worker(options=("--tls", own))
            gate.stop_at(1)
            with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator",
                         cluster.address, "--tls", authority.folder("client")) as follower:
                wait_for(lambda: newest_step(metrics) >= 1, "the run to stand")
                deny(own, "server/server\n")
                gate.crawl(lambda: "TLS: the certificate of spiffe://weir/server/server is denied" in worker.output(), "an answer that is not taken", 1)
                gate.open()
                wait_for(lambda: " servers_unreached " in worker.output() and "is in denied.txt here" in worker.output(), "the run to wait")
                deny(own, "")
                assert follower.wait() == 0, follower.output()[-3000:]
            assert done_event(metrics)["weights_sha256"] == undisturbed()


def test_a_port_whose_certificate_names_nobody_is_not_believed():
    """It has the name that is asked for, and no list could deny it."""
    with Folder() as folder:
        authority = Authority(folder)
        for number, names in enumerate(("DNS:coordinator.weir", "URI:spiffe://weir/all/a,URI:spiffe://weir/all/b,DNS:coordinator.weir")):
            nobody = authority.issue(folder.file(f"nobody-{number}"), names)
            with subprocess.Popen(["openssl", "s_server", "-accept", "127.0.0.1:0", "-alpn", "h2", "-cert", nobody + "/cert.pem", "-key",
                                   nobody + "/key.pem"], stdout=subprocess.PIPE, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as port:
                try:
                    address = next(line.split()[1] for line in port.stdout if line.startswith("ACCEPT"))
                    done = weir("runs", "--coordinator", address, "--tls", authority.folder("client"), status=3)
                    assert len(done.stderr.splitlines()) == 1 and "TLS: its certificate names no member of Weir" in done.stderr, done
                finally:
                    port.kill()


def test_a_session_is_of_no_use_once_its_certificate_has_ended():
    """As openssl s_client keeps it, by each version of TLS."""
    with Folder() as folder:
        authority, seconds = Authority(folder), 4
        with secured(folder, authority, servers=0, workers=0) as cluster:
            port, versions = int(cluster.address.rsplit(":", 1)[1]), ("-tls1_2", "-tls1_3")
            while True:
                own = authority.issue(folder.file(f"client-{seconds}"), "URI:spiffe://weir/client/a/viewer/c,DNS:client.weir",
                                      (-1, seconds / DAY_S))
                if all(SETTINGS in client_output(port, version, *shown(own), "-sess_out", folder.file("session" + version)) for version in versions):
                    break  # else it has ended already
                assert seconds < PATIENCE
                seconds *= 2
            wait_for(lambda: subprocess.run(["openssl", "x509", "-in", own + "/cert.pem", "-noout", "-checkend", "0"], check=False,
                                            capture_output=True).returncode == 1, "the end of the certificate")
            for version in versions:
                assert os.path.getsize(folder.file("session" + version)) > 0, "there is no session that could be resumed"
                assert SETTINGS not in client_output(port, version, *shown(own), "-sess_in", folder.file("session" + version)), version


def test_a_certificate_that_ends_within_a_week_is_warned_of():
    with Folder() as folder:
        authority = Authority(folder)
        for days, is_warned in ((6, True), (8, False)):
            name = f"coordinator-{days}"
            certificate = authority.issue(folder.file(name), NAMES.format("coordinator"), (-1, days))
            done = weir("certs", "show", certificate)
            assert ("ends within 6 days" in done.stderr) == is_warned and len(done.stderr.splitlines()) == is_warned, done
            with Cluster(folder, servers=0, workers=0, store="file://" + folder.file("store-" + name),
                         options=("--tls", certificate)) as cluster:
                log = cluster.coordinator.output()
                assert (f' certificate_ends file="{certificate}/cert.pem" valid_until="' in log) == is_warned, log


if __name__ == "__main__":
    main(globals())
