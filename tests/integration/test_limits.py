"""What others may take of a process: beyond it they are refused, and everybody else is served as before."""
import contextlib
import resource
import struct
import threading

from certificates import Authority
from gate import Gate
from harness import Cluster, Folder, Process, done_event, main, newest_step, program, start_announced, wait_for, weir
from raw_http2 import ENDLESS, GREETING, SETTINGS, connect, is_closed, send_endless
from test_tls import undisturbed, write_spec

DESCRIPTORS, FRAMES = 40, 40  # a process of ours needs some 20 for itself
EVIL = [f"127.0.0.{number}" for number in range(2, 42)]  # addresses, each of which has its share


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


@contextlib.contextmanager
def serving(folder, *options, **process):
    server, address = start_announced(program("weir-server"), "--listen", "127.0.0.1:0", "--store",
                                      "file://" + folder.file("store"), *options, **process)
    with server:
        yield server, address


def is_served(address, *options):
    return weir("health", address, *options).stdout.startswith("serving")


def is_reached(address):
    with contextlib.suppress(AssertionError):
        return is_served(address)
    return False


def test_headers_that_do_not_end_break_their_connection_alone():
    with Folder() as folder, serving(folder) as (server, address):
        for kind in ENDLESS:
            with connect(address) as good, connect(address) as evil:
                good.sendall(GREETING)
                assert good.recv(1)
                send_endless(evil, kind, FRAMES)
                assert is_closed(evil), f"{kind}: the connection is open"
                assert is_served(address), kind
        assert " headers_refused " in server.output() and "127.0.0.1" in server.output(), server.output()


def test_headers_that_do_not_end_break_their_connection_with_tls_too():
    with Folder() as folder:
        authority = Authority(folder)
        client = authority.folder("client")
        with serving(folder, "--tls", authority.folder("all")) as (server, address):
            for kind in ENDLESS:
                with connect(address, tls=client) as evil:
                    send_endless(evil, kind, FRAMES)
                    assert is_closed(evil), f"{kind}: the connection is open"
                assert is_served(address, "--tls", client), kind
            assert "spiffe://weir/client/" in server.output(), server.output()


def test_a_port_accepts_again_after_all_descriptors_were_taken():
    with Folder() as folder, serving(folder, preexec_fn=few_descriptors) as (server, address):
        held = [connect(address, own) for own in EVIL]
        wait_for(lambda: "this process may open no more files" in server.output(), "descriptors to run out")
        for connection in held:
            connection.close()
        wait_for(lambda: is_reached(address), "the port to accept again")


def test_an_address_with_too_many_connections_takes_them_from_nobody_else():
    with Folder() as folder, serving(folder, preexec_fn=few_descriptors) as (server, address):
        held = [connect(address, EVIL[0]) for _ in range(4 * DESCRIPTORS)]
        wait_for(lambda: f"a connection of {EVIL[0]}: it has" in server.output(), "the address to be refused")
        assert is_served(address)
        for connection in held:
            connection.close()


def test_a_connection_that_does_not_speak_http2_is_closed():
    with Folder() as folder, serving(folder) as (_, address):
        silent, half, slow = (connect(address) for _ in range(3))
        half.sendall(GREETING[:10])
        slow.sendall(GREETING[:24])
        for connection in (silent, half, slow):
            assert is_closed(connection)
        assert is_served(address)


def test_a_port_says_how_many_calls_a_connection_may_have_open():
    """RFC 9113, 6.5.2: SETTINGS_MAX_CONCURRENT_STREAMS is number 3, of 6 bytes each; a client keeps to it, as gRPC's do."""
    with Folder() as folder, serving(folder) as (_, address), connect(address) as client:
        client.sendall(GREETING)
        heard = b""
        while len(heard) < 9 or len(heard) < 9 + int.from_bytes(heard[:3], "big"):
            piece = client.recv(4096)
            assert piece, heard
            heard += piece
        assert heard[3] == SETTINGS, heard
        settings = heard[9:9 + int.from_bytes(heard[:3], "big")]
        assert dict(struct.iter_unpack(">HI", settings)).get(3) == 4096, settings


@contextlib.contextmanager
def siege(*addresses):
    """Headers without end on all of these ports, again and again."""
    is_over, rounds = threading.Event(), {address: 0 for address in addresses}

    def attack(address):
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                for kind in ENDLESS:
                    with connect(address, EVIL[0]) as evil:
                        send_endless(evil, kind, FRAMES)
                rounds[address] += 1
    threads = [threading.Thread(target=attack, args=(address,)) for address in addresses]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: min(rounds.values()), "attacks on each port")
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def test_a_run_trains_through_all_of_it_to_the_same_weights():
    expected = undisturbed()
    with Folder() as folder, Cluster(folder, servers=0, workers=0, gate=Gate(folder), preexec_fn=few_descriptors) as cluster:
        cluster.add_server(preexec_fn=few_descriptors)
        cluster.add_server(preexec_fn=few_descriptors)
        cluster.add_worker()
        gate, metrics = cluster.gate, folder.file("metrics.jsonl")
        ports = [cluster.address, *(address for _, address in cluster.servers)]
        gate.stop_at(1)
        with Process(program("weir"), "submit", write_spec(folder), "--follow", "--metrics", metrics, "--coordinator",
                     cluster.address) as client:
            wait_for(lambda: newest_step(metrics) >= 1, "the first steps")
            with siege(*ports):
                gate.stop_at(3)
                wait_for(lambda: newest_step(metrics) >= 3, "steps under attack")
            held = [connect(port, own) for port in ports for own in EVIL for _ in range(2)]
            for process in (cluster.coordinator, *(server for server, _ in cluster.servers)):
                wait_for(lambda: "connection_refused" in process.output(), "descriptors to run out")
            gate.stop_at(5)
            wait_for(lambda: newest_step(metrics) >= 5, "steps without a descriptor to spare")
            for connection in held:
                connection.close()
            gate.open()
            assert client.wait() == 0, client.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == expected
        assert "connection_refused" in cluster.coordinator.output() and "headers_refused" in cluster.coordinator.output()


if __name__ == "__main__":
    main(globals())
