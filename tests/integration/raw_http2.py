"""Connections of HTTP/2 by raw sockets, and what those send that mean ill."""
import contextlib
import os
import socket
import ssl
import struct

from harness import PATIENCE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, CONTINUATION = 1, 4, 9


def frame(kind, stream, body=b"", flags=0):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


GREETING = PREFACE + frame(SETTINGS, 0)
A_HEADER = b"\x00\x01a"  # a literal one, never indexed: its name is "a", its value follows
# Headers that do not end: what the HEADERS frame holds, and the CONTINUATION frames for ever after it.
ENDLESS = {
    "a value of a gigabyte": (A_HEADER + b"\x7f\x81\xff\xff\xff\x03", b"v" * 16384),
    "a length of zeros": (A_HEADER + b"\x7f", b"\x80" * 16384),
    "one header after the other": (b"", (A_HEADER + b"\x64" + b"v" * 100) * 30),
    "empty frames": (b"", b""),
}


def connect(address, own="127.0.0.1", tls=None):
    """A connection from an address of this machine; tls: a folder of certificates."""
    host, port = address.rsplit(":", 1)
    raw = socket.create_connection((host, int(port)), PATIENCE, source_address=(own, 0))
    if not tls:
        return raw
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(os.path.join(tls, "ca.pem"))
    context.load_cert_chain(os.path.join(tls, "cert.pem"), os.path.join(tls, "key.pem"))
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(raw)


def is_closed(connection):
    """Waits until the other end hangs up; False if it does not."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while True:
            try:
                if not connection.recv(65536):
                    return True
            except TimeoutError:
                return False
    return True


def send_endless(connection, kind, frames):
    """False: the other end has hung up."""
    first, more = ENDLESS[kind]
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        connection.sendall(GREETING + frame(HEADERS, 1, first))
        for _ in range(frames):
            connection.sendall(frame(CONTINUATION, 1, more))
        return True
    return False
