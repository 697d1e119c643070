#!/usr/bin/env python3
"""A gRPC client that knows no message of Weir calls methods with a certificate, each with one message.

usage: peer_roles.py CA CERTIFICATE KEY [NAME HOST:PORT METHOD HEX]...

Needs grpcio. NAME: what the port's certificate must say; METHOD: a path; HEX: the message's bytes, or - for none. Prints a line for
each call: the path, the status's code or OK, and its details.
"""
import sys

import grpc

TIMEOUT_SECONDS = 60


def call(channel, path, message):
    method = channel.stream_stream(path, request_serializer=None, response_deserializer=None)
    replies = method(iter([message]), timeout=TIMEOUT_SECONDS)
    try:
        next(replies, None)
        return "OK", ""
    except grpc.RpcError as error:
        return error.code().name, error.details()
    finally:
        replies.cancel()


def main():
    texts = []
    for path in sys.argv[1:4]:
        with open(path, "rb") as file:
            texts.append(file.read())
    credentials = grpc.ssl_channel_credentials(texts[0], texts[2], texts[1])
    calls = sys.argv[4:]
    for name, address, path, message in zip(*[iter(calls)] * 4):
        with grpc.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", name)]) as channel:
            print(path, *call(channel, path, b"" if message == "-" else bytes.fromhex(message)), flush=True)


main()
