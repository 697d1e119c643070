"""What stands between processes in tests of broken networks."""
import os
import socket
import struct
import threading
import time


def holds(pid, near):
    """Whether the other end of a loopback connection, which we accepted, is the process's."""
    inodes = set()
    try:
        wanted = near.getpeername()[1], near.getsockname()[1]
    except OSError:  # it is closed
        return False
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as table:
            for line in table.readlines()[1:]:
                fields = line.split()
                if tuple(int(fields[column].rsplit(":", 1)[1], 16) for column in (1, 2)) == wanted:
                    inodes.add(f"socket:[{fields[9]}]")
    try:
        return any(is_one_of(f"/proc/{pid}/fd/{number}", inodes) for number in os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # it has ended
        return False


def is_one_of(link, names):
    try:
        return os.readlink(link) in names
    except OSError:  # it was closed meanwhile
        return False


class Proxy:
    """A loopback port in front of another that can reset its connections, hold their bytes back for a while, let single
    processes have none, or new ones few bytes a second."""

    def __init__(self):
        self.target, self.held_until, self.pairs, self.lock = None, 0.0, set(), threading.Lock()
        self.refused = frozenset()  # pids
        self.rate = None  # bytes a second, of pairs that are slow
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.target is None or self.is_refused(near):
                near.close()
                continue
            try:
                host, port = self.target.split(":")
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            pair = (near, far)
            for end in pair:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.pairs.add(pair)
            if self.is_refused(near):  # it was cut meanwhile
                self.reset(pair)
                continue
            is_slow = self.rate is not None
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self.forward, args=(pair, source, sink, is_slow), daemon=True).start()

    def forward(self, pair, source, sink, is_slow):
        try:
            while data := source.recv(1 << (12 if is_slow else 16)):
                if is_slow and (rate := self.rate):
                    time.sleep(len(data) / rate)
                while (pause := self.held_until - time.monotonic()) > 0:
                    time.sleep(min(pause, 0.1))
                sink.sendall(data)
        except OSError:
            pass
        self.reset(pair)

    def reset(self, pair):
        with self.lock:
            if pair not in self.pairs:
                return
            self.pairs.remove(pair)
        for end in pair:
            try:  # a reset wakes the threads of the pair, and closing without lingering sends one
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)
            except OSError:
                pass
            end.close()

    def reset_some(self, chooser):
        with self.lock:
            pairs = [pair for pair in self.pairs if chooser.random() < 0.7]
        for pair in pairs:
            self.reset(pair)

    def cut(self, process):
        """The process has no connection from here on."""
        self.refused = self.refused | {process.child.pid}
        with self.lock:
            pairs = [pair for pair in self.pairs if self.is_refused(pair[0])]
        for pair in pairs:
            self.reset(pair)

    def slow_newcomers(self, rate):
        """What connections that begin from here on carry: so many bytes a second each way, until it is another rate, or
        None: as many as go."""
        self.rate = rate

    def mend(self):
        """All may connect again."""
        self.refused = frozenset()

    def is_refused(self, near):
        return any(holds(pid, near) for pid in self.refused)

    def hold(self, seconds):
        self.held_until = time.monotonic() + seconds

    def close(self):
        self.listener.close()
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            self.reset(pair)
