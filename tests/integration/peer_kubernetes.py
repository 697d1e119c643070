#!/usr/bin/env python3
"""Checks manifests against Kubernetes' own schema, and tells what they start.

usage: peer_kubernetes.py VERSION FILE.yaml...

Needs kubernetes-validate, which has the schemas, and PyYAML. Prints {FILE: [RESOURCE, ...]} as JSON; exit status 1 with a line for each
resource that the schema of that version refuses. A Kustomization is of kustomize alone, and is not checked.
"""
import json
import sys

import kubernetes_validate
import yaml


def main():
    version, *paths = sys.argv[1:]
    found, wrong = {}, []
    for path in paths:
        with open(path) as file:
            found[path] = [resource for resource in yaml.safe_load_all(file) if resource]
        for resource in found[path]:
            if resource["kind"] == "Kustomization":
                continue
            try:
                kubernetes_validate.validate(resource, version, strict=True)
            except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
                wrong.append(f"{path}: {resource['kind']} {resource['metadata']['name']}: {error}")
    print(json.dumps(found))
    print("\n".join(wrong), file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
