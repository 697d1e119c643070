#!/usr/bin/env python3
"""Reads a dashboard with Grafana's own models, which are made from its schemas: peer_grafana.py FILE.json. Prints what they keep of it."""
import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()
with open(sys.argv[1]) as file:
    print(JSONEncoder().encode(Dashboard.from_json(json.load(file))))
