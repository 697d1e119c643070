"""Tickets of runs (common/certs/ticket.h), made by somebody who has read a run's key in the store."""
import hashlib
import hmac
import os

KEY = 35  # of RunRecord.key in proto/store.proto
KEY_BYTES = 32


def fields_of(message):
    """(number, value) of each field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield tag >> 3, message[at:at + size]
        at += size


def key_of(store, run):
    """store: a folder."""
    with open(os.path.join(store, "records/runs", run, "run"), "rb") as record:
        key = dict(fields_of(record.read()))[KEY]
    assert len(key) == KEY_BYTES, key
    return key


def ticket_of(store, run, incarnation=0, holder="", worker=0, key=None):
    """key: by default the run's."""
    signed = b"\0".join((b"weir ticket 2", run.encode(), str(incarnation).encode(), str(worker).encode(), holder.encode()))
    return f"{run}/{incarnation}/{worker}/{hmac.new(key or key_of(store, run), signed, hashlib.sha256).hexdigest()}"


def peer_key_of(store, run):
    """Of what workers of a team send each other."""
    return hmac.new(key_of(store, run), b"weir peers 1\0", hashlib.sha256).digest()
