#!/bin/sh
# Installs the inbox and the programs that read it.
set -eu
cd "$(dirname "$0")"

publish() { # FROM TO MODE: a reader sees the old file or the new one
    install -o root -g root -m "$3" "$1" "$2.partial"
    sync "$2.partial"
    mv -f "$2.partial" "$2"
}

getent group tenant-inbox > /dev/null || groupadd --system tenant-inbox
# The assistant reads the inbox; its gateway takes the group up at its next start.
usermod --append --groups tenant-inbox hermes
install -d -o hermes -g tenant-inbox -m 2770 /srv/tenant/inbox /srv/tenant/inbox/done
publish tenant-inbox /usr/local/bin/tenant-inbox 0755
publish tenant-overview /usr/local/bin/tenant-overview 0755
