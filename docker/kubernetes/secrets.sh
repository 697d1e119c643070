#!/bin/sh
# secrets.sh CERTS_DIR: what pods know each other by, for `kubectl apply -f -`: a Secret for each role, of the folder that `weir certs init`
# made, and passwords of Redis for the coordinator and for servers, of which Redis has the hash. Run again it makes other passwords:
# then coordinators, servers and Redis are to be restarted. The authority's key stays where it is.
set -eu
certs=${1:?"usage: secrets.sh CERTS_DIR, a folder that weir certs init made"}
for role in coordinator server worker client store; do
  [ -r "$certs/$role/key.pem" ] || { echo "secrets.sh: $certs has no $role/key.pem: weir certs init $certs" >&2; exit 1; }
done
password() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
hash() { printf %s "$1" | sha256sum | cut -c1-64; }
entry() { printf '  %s: %s\n' "$1" "$(base64 -w 0)"; }

secret() {
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: {name: weir-%s, namespace: weir}\ndata:\n' "$1"
  for file in ca.pem cert.pem key.pem; do entry $file <"$certs/$1/$file"; done
}

coordinator=$(password) server=$(password)
secret coordinator
printf %s "$coordinator" | entry store-password
secret server
printf %s "$server" | entry store-password
secret worker
secret client
secret store
hash "$coordinator" | tr -d '\n' | entry coordinator.sha256
hash "$server" | tr -d '\n' | entry server.sha256
