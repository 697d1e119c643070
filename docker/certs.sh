#!/bin/sh
# Makes what the containers of docker/compose.yaml know each other by: a private authority, in a volume that no other
# container has; for each role a certificate, in the volume of that role; for the users of Redis a password each, of which
# Redis has the hash. What is there stays, but for a certificate that cannot be used or ends within a week: it is replaced.
set -eu
umask 077
authority=/run/authority/ca
[ -e $authority/ca-key.pem ] || weir certs init $authority

# Says nothing on stderr of one that is good for more than a week.
is_good() {
  weir certs show "$1" >/dev/null 2>/tmp/why && [ ! -s /tmp/why ]
}

for role in coordinator server worker client store; do
  own=/run/weir-$role
  is_good $own/tls && continue
  new=tls-$(cat /proc/sys/kernel/random/uuid)
  if [ $role = client ]; then # of an operator, for every user of its container
    weir certs issue --ca $authority --role client --access operator $own/$new
    chmod g+rx $own/$new
    chmod g+r $own/$new/*
  else
    weir certs issue --ca $authority --role $role $own/$new
  fi
  ln -sfn $new $own/tls.new
  mv -T $own/tls.new $own/tls
  find $own -mindepth 1 -maxdepth 1 -name 'tls-*' ! -name $new -exec rm -r {} +
done

for user in coordinator server; do
  password=/run/weir-$user/store-password
  if [ ! -s $password ]; then
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >$password.new
    mv $password.new $password
  fi
  sha256sum <$password | cut -c1-64 >/run/weir-store/$user.sha256
done
