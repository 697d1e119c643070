"""A link that sees which certificates both ends show, and breaks when a test wants it: it has the keys of all roles, so it
answers as the one end and asks as the other."""
import select
import socket
import ssl
import threading

from harness import own_address

ROOM = 1 << 20  # bytes on their way to one end


class Inspector:
    """A loopback port in front of one at `target` (HOST:PORT) whose process has the role. folders: of certificates, by role;
    they are read for each connection. callers, ports: the serials that were shown, newest last, by role of the caller, and by
    the port."""

    def __init__(self, role, target, folders):
        self.role, self.target, self.folders = role, target, folders
        self.callers, self.ports, self.open, self.lock = {}, [], set(), threading.Lock()
        self.address = own_address()
        self.listener = socket.create_server(("127.0.0.1", int(self.address.split(":")[1])))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(near,), daemon=True).start()

    def context(self, role, purpose):
        folder = self.folders[role]
        context = ssl.create_default_context(purpose, cafile=folder + "/ca.pem")
        context.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        return context

    def serve(self, near):
        far = None
        try:
            near = self.context(self.role, ssl.Purpose.CLIENT_AUTH).wrap_socket(near, server_side=True)
            shown = near.getpeercert()
            uri = next(value for kind, value in shown["subjectAltName"] if kind == "URI")
            caller = uri.split("/")[3]
            host, port = self.target.split(":")
            far = self.context(caller, ssl.Purpose.SERVER_AUTH).wrap_socket(
                socket.create_connection((host, int(port))), server_hostname=self.role + ".weir")
            with self.lock:
                self.callers.setdefault(caller, []).append(shown["serialNumber"])
                self.ports.append(far.getpeercert()["serialNumber"])
                self.open.add((near, far))
            forward(near, far)
        except (OSError, ValueError):  # one end refuses, or has gone; or a folder is just being replaced
            pass
        with self.lock:
            self.open.discard((near, far))
        for end in (near, far):
            if end:
                end.close()

    def break_all(self):
        with self.lock:
            for pair in self.open:
                for end in pair:
                    try:
                        socket.socket.shutdown(end, socket.SHUT_RDWR)  # TLS's own would not be for this thread
                    except OSError:
                        pass

    def close(self):
        self.listener.close()
        self.break_all()


def forward(*ends):
    """Both ways, by one thread, until one end has closed the connection."""
    waiting = {end: bytearray() for end in ends}  # to be sent to it
    for end in ends:
        end.setblocking(False)
    while True:
        has_moved = False
        for end, other in (ends, ends[::-1]):
            try:
                while len(waiting[other]) < ROOM:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    waiting[other] += data
                    has_moved = True
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            try:
                while waiting[end]:
                    del waiting[end][:end.send(waiting[end])]
                    has_moved = True
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
        if not has_moved:
            select.select(ends, [end for end in ends if waiting[end]], [], 1)
