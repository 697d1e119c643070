#!/usr/bin/env python3
"""A gRPC client that sends bytes to methods, with tickets of its own choice.

usage: peer_tickets.py [CA CERTIFICATE KEY]

Reads a JSON object a line: {"name": what the port's certificate must say, "address", "path", "ticket": text or null, "hex": the
message's bytes}. Answers each by one: {"status", "details", "bytes": how many the first reply has}. Needs grpcio."""
import json
import sys

import grpc

TIMEOUT_SECONDS = 60


def open_channel(address, name, files):
    if not files:
        return grpc.insecure_channel(address)
    texts = [open(path, "rb").read() for path in files]
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(texts[0], texts[2], texts[1]),
                               options=[("grpc.ssl_target_name_override", name)])


def call(channel, wanted):
    method = channel.stream_stream(wanted["path"], request_serializer=None, response_deserializer=None)
    metadata = [("weir-ticket", wanted["ticket"])] if wanted["ticket"] is not None else None
    replies = method(iter([bytes.fromhex(wanted["hex"])]), timeout=TIMEOUT_SECONDS, metadata=metadata)
    try:
        return {"status": "OK", "details": "", "bytes": len(next(replies, b""))}
    except grpc.RpcError as error:
        return {"status": error.code().name, "details": error.details(), "bytes": 0}
    finally:
        replies.cancel()


def main():
    while line := sys.stdin.readline():
        wanted = json.loads(line)
        with open_channel(wanted["address"], wanted["name"], sys.argv[1:]) as channel:
            print(json.dumps(call(channel, wanted)), flush=True)


main()
