#!/bin/sh
# The store: a Redis that keeps every write in /data and speaks TLS alone, to those with a certificate of the same
# authority. Its own certificate, and the hashes of its users' passwords, are in /run/weir, a volume that docker/certs.sh
# has filled. `weir-redis ping` asks whether it answers.
set -eu
tls=/run/weir/tls
if [ "${1:-}" = ping ]; then
  answer=$(redis-cli --tls --cacert $tls/ca.pem --cert $tls/cert.pem --key $tls/key.pem --user health --pass none \
    --no-auth-warning ping)
  [ "$answer" = PONG ]
  exit
fi
coordinator=$(cat /run/weir/coordinator.sha256)
server=$(cat /run/weir/server.sha256)
umask 077
# Nobody can be the user `default`, but Redis itself is when it reads /data: what that user may not do is left out then.
# A server keeps blocks, and reads the records of runs. Users may do nothing but what is written here.
cat >/tmp/redis.conf <<END
bind 0.0.0.0
port 0
tls-port 6379
tls-cert-file $tls/cert.pem
tls-key-file $tls/key.pem
tls-ca-cert-file $tls/ca.pem
tls-auth-clients yes
tls-protocols "TLSv1.2 TLSv1.3"
user default off ~* &* +@all
user health on nopass +ping
user coordinator on #$coordinator ~weir:b:* ~{weir}:* +set +get +exists +unlink +scan +strlen +eval +zrangebylex +zadd +zrem +del +ping +wait +select
user server on #$server ~weir:b:* %R~{weir}:* +set +get +exists +strlen +ping +wait +select
dir /data
save ""
appendonly yes
appendfsync everysec
END
exec redis-server /tmp/redis.conf
