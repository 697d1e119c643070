#!/bin/sh
# The store: a Redis that keeps every write in /data. Its password is made when it first starts, and kept in
# /run/weir, a volume that the coordinator and the servers mount too: it is on no command line, in no
# environment and in no image. `weir-redis ping` asks whether it answers.
set -eu
password=/run/weir/store-password
if [ "${1:-}" = ping ]; then
  answer=$(REDISCLI_AUTH=$(cat $password) redis-cli ping)
  [ "$answer" = PONG ]
  exit
fi
if [ ! -s $password ]; then
  umask 077
  head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >$password.new
  mv $password.new $password
fi
umask 077
cat >/tmp/redis.conf <<END
bind 0.0.0.0
requirepass $(cat $password)
dir /data
save ""
appendonly yes
appendfsync everysec
END
exec redis-server /tmp/redis.conf
