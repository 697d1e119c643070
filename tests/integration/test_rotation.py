"""Every certificate, and then the authority, is replaced while a run trains, and every connection is broken each time: the new
ones are shown on every link, in both directions, and no step is lost.

All connections lead through links that see which certificates both ends show. A run in two stages that clips its norm has
every kind: from members and the client to the coordinator, from workers and servers to servers, from workers to workers."""
import contextlib
import re
import shutil

from certificates import Authority
from gate import Gate
from harness import Cluster, Folder, Process, done_event, kept, main, newest_step, own_address, program, read_metrics, wait_for, weir
from inspector import Inspector
from test_tls import DATA_ROOT, SETTINGS, said_by_tls, shown

ROLES = ("coordinator", "server", "worker", "client")
STEPS = 100
MODEL = ("mlp", "--input", "1,28,28", "--hidden", "100", "--classes", "10", "--seed", "5")  # of several blocks, for both servers


def write_spec(folder, more=""):
    data = Folder()
    data.path = DATA_ROOT.name
    data.small_data(240, 48)
    text = open(data.small_spec(folder.model(*MODEL), 4, STEPS, STEPS)).read()
    return folder.file("spec.yaml", text.replace("  seed: 3\n", "  seed: 3\n  clip_norm: 1.0\n") + more)


def undisturbed():
    def train():
        with Folder() as folder:
            metrics = folder.file("metrics.jsonl")
            weir("train", write_spec(folder), "--out", folder.file("out"), "--metrics", metrics, "--threads", 1)
            return done_event(metrics)["weights_sha256"]
    return kept("rotation-undisturbed", train)


def serial_of(certificate):
    return re.search(r"^serial +(\w+)$", weir("certs", "show", certificate).stdout, re.MULTILINE).group(1)


class Links:
    """In front of a coordinator, two servers and two workers, with whom each link must see."""

    def __init__(self, stack, cluster, folders):
        def link(role, target, callers):
            link = Inspector(role, target, folders)
            stack.callback(link.close)
            self.callers[link] = callers
            return link

        self.callers, self.folders = {}, folders
        self.coordinator = link("coordinator", cluster.address, ("server", "worker", "client"))
        for callers in (("worker", "server"), ("worker",)):  # of the first one the other asks for sums
            listen = own_address()
            server = link("server", listen, callers)
            cluster.servers.append(cluster.start_server(listen=listen, advertise=server.address, coordinator=self.coordinator.address))
            cluster.all_join()
        for _ in range(2):
            listen = own_address()
            worker = link("worker", listen, ("worker",))
            cluster.add_worker(coordinator=self.coordinator.address, options=("--tls", folders["worker"], "--listen", listen, "--advertise",
                                                                              worker.address))
        cluster.all_join()

    def marks(self):
        """How many certificates each link has seen, by caller."""
        return {(link, caller): len(link.callers.get(caller, ())) for link, callers in self.callers.items() for caller in callers}

    def break_all(self):
        for link in self.callers:
            link.break_all()

    def are_made_again(self, before):
        """All since then, with what the folders have now: else they are broken again, for a process looks at its folder every
        second."""
        serials = {role: serial_of(folder) for role, folder in self.folders.items()}
        are_new = True
        for (link, caller), mark in before.items():
            seen = link.callers.get(caller, ())[mark:]
            is_new = bool(seen) and seen[-1] == serials[caller] and link.ports[-1] == serials[link.role]
            if seen and not is_new:
                link.break_all()
            are_new &= is_new
        return are_new


def test_all_certificates_and_the_authority_are_replaced_in_mid_run():
    with Folder() as folder, contextlib.ExitStack() as stack:
        authority, other, gate = Authority(folder), Authority(folder, "other"), Gate(folder)
        folders = {role: authority.folder(role) for role in ROLES}
        old = shutil.copytree(folders["client"], folder.file("old"))
        cluster = stack.enter_context(Cluster(folder, servers=0, workers=0, gate=gate, is_patient=True,
                                              options=("--tls", folders["coordinator"])))
        cluster.server_options = ("--tls", folders["server"])
        links, metrics = Links(stack, cluster, folders), folder.file("metrics.jsonl")
        gate.stop_at(1)
        client = stack.enter_context(Process(program("weir"), "submit", write_spec(folder, "workers: {stages: 2, min: 2}\n"), "--follow",
                                             "--metrics", metrics, "--coordinator", links.coordinator.address, "--tls", folders["client"]))
        wait_for(lambda: newest_step(metrics) >= 1, "the run to stand")
        every = tuple(folders.values())
        for command in (("renew", "--ca", authority.path), ("renew", "--ca", authority.path), ("trust", "--ca", other.path),
                        ("renew", "--ca", other.path), ("trust", "--alone", "--ca", other.path)):
            before, serials = links.marks(), {role: serial_of(path) for role, path in folders.items()}
            weir("certs", *command, *every)
            assert all((serial_of(path) != serials[role]) == (command[0] == "renew") for role, path in folders.items()), command
            links.break_all()
            gate.crawl(lambda before=before: links.are_made_again(before), f"new connections after {command}", steps=1)
            assert client.child.poll() is None, client.output()[-3000:]
        for link in links.callers:
            port = int(link.target.split(":")[1])
            assert SETTINGS in said_by_tls(port, *shown(folders["client"])), link.role
            assert said_by_tls(port, *shown(old)) == b"", f"the {link.role} lets in a certificate of the former authority"
        gate.open()
        assert client.wait() == 0, client.output()[-3000:]
        events = [event for event in read_metrics(metrics) if event["event"] == "step"]
        assert [event["step"] for event in events] == list(range(STEPS)) and not any(event.get("incarnation") for event in events)
        assert done_event(metrics)["weights_sha256"] == undisturbed()


if __name__ == "__main__":
    main(globals())
