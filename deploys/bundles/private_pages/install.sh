#!/bin/sh
# Makes the private area with a password of its own, and a first page where there is none yet.
set -eu
cd "$(dirname "$0")"
umask 077
pages=/srv/tenant/private
password=/etc/tenant/private-pages.password
account=/etc/caddy/private-owner

keep() { # FROM TO OWNER GROUP MODE: a reader sees no file or the whole one
    install -o "$3" -g "$4" -m "$5" "$1" "$2.partial"
    sync "$2.partial"
    mv -f "$2.partial" "$2"
}

install -d -o hermes -g caddy -m 2750 "$pages"
[ -e "$pages/index.html" ] || keep index.html "$pages/index.html" hermes caddy 0640

# The password is made here once and leaves the host only when a person reads it out.
if [ ! -e "$password" ]; then
    head -c 15 /dev/urandom | base64 | tr '+/' 'xy' > password
    keep password "$password" root root 0600
    rm -f "$account"
fi
if [ ! -e "$account" ]; then
    # Over standard input, and with a home of its own: it keeps certificates there that nobody needs.
    printf 'owner %s\n' "$(HOME=$PWD caddy hash-password < "$password")" > account
    keep account "$account" root caddy 0640
fi
