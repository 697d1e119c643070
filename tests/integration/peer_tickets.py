#!/usr/bin/env python3
"""A gRPC client that sends bytes to methods, with tickets of its own choice.

usage: peer_tickets.py [CA CERTIFICATE KEY]

Reads a JSON object a line: {"name": what the port's certificate must say, "address", "path", "ticket": text or null, "hex": the
message's bytes}. Answers each by one: {"status", "details", "hex": the first reply}. Needs grpcio."""
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
        return {"status": "OK", "details": "", "hex": next(replies, b"").hex()}
    except grpc.RpcError as error:
        return {"status": error.code().name, "details": error.details(), "hex": ""}
    finally:
        replies.cancel()


def main():
    channels = {}
    while line := sys.stdin.readline():
        wanted = json.loads(line)
        port = wanted["address"], wanted["name"]
        if port not in channels:
            channels[port] = open_channel(*port, sys.argv[1:])
        print(json.dumps(call(channels[port], wanted)), flush=True)


main()
