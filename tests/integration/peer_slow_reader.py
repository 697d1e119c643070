#!/usr/bin/env python3
"""A gRPC client that asks for a run's weights many times at once, and reads nothing of them.

usage: peer_slow_reader.py ADDRESS CA CERTIFICATE KEY RUN COUNT

Writes a JSON object a line for each call that ends: {"status", "details"}. The others stay as they are until the process is killed. Needs
grpcio."""
import json
import sys
import threading

import grpc

address, *files, run, count = sys.argv[1:]
ca, certificate, key = (open(path, "rb").read() for path in files)
options = [("grpc.ssl_target_name_override", "coordinator.weir"), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536)]
channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate), options=options)
method = channel.unary_stream("/weir.Training/GetWeights")
lock = threading.Lock()


def tell(call):
    with lock:
        print(json.dumps({"status": call.code().name, "details": call.details()}), flush=True)


calls = [method(bytes((1 << 3 | 2, len(run))) + run.encode()) for _ in range(int(count))]
for one in calls:
    one.add_callback(lambda one=one: tell(one))
threading.Event().wait()
