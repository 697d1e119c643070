"""Connections: encrypted, with certificates on both ends, or in plaintext on this machine alone."""
from __future__ import annotations

import ipaddress
import os
from typing import Optional

import grpc

from .errors import Invalid

MESSAGE_BYTES_MAX = 64 << 20
OPTIONS = (("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.keepalive_time_ms", 10000),
           ("grpc.keepalive_timeout_ms", 10000), ("grpc.http2.max_pings_without_data", 0), ("grpc.enable_retries", 0),
           ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000),
           ("grpc.min_reconnect_backoff_ms", 5000))  # the last: really, how long connecting may take


def _is_here(address: str) -> bool:
    host = address.rsplit(":", 1)[0].strip("[]")
    if address.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(folder: str, name: str) -> bytes:
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Invalid("INVALID_ARGUMENT", f"{path}: {error.strerror}; `weir certs issue` makes such a folder") from None


def open_channel(address: str, role: str, tls: Optional[str] = None, insecure: bool = False) -> grpc.Channel:
    """A channel to a process of that role: it is believed by the name ROLE.weir in its certificate, wherever it runs.

    tls: a folder of ca.pem, cert.pem and key.pem. insecure: plaintext may leave this machine."""
    if tls:
        credentials = grpc.ssl_channel_credentials(_read(tls, "ca.pem"), _read(tls, "key.pem"), _read(tls, "cert.pem"))
        return grpc.secure_channel(address, credentials, (*OPTIONS, ("grpc.ssl_target_name_override", f"{role}.weir")))
    if not insecure and not _is_here(address):
        raise Invalid("INVALID_ARGUMENT", f"{address} is not on this machine: name a folder of certificates (tls=), or say "
                                          "insecure=True on a network that you trust")
    return grpc.insecure_channel(address, OPTIONS)
