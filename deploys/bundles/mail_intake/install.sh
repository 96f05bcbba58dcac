#!/bin/sh
# Installs the mail intake, starts it and waits until it greets.
set -eu
cd "$(dirname "$0")"
unit=tenant-mail.service

publish() { # FROM TO MODE: a reader sees the old file or the new one
    install -o root -g root -m "$3" "$1" "$2.partial"
    sync "$2.partial"
    mv -f "$2.partial" "$2"
}

getent passwd tenant-mail > /dev/null ||
    useradd --system --user-group --no-create-home --home-dir /var/lib/tenant-mail --shell /usr/sbin/nologin tenant-mail
install -d /opt/tenant-mail
publish server.py /opt/tenant-mail/server.py 0644
publish "$unit" "/etc/systemd/system/$unit" 0644
systemctl daemon-reload
systemctl enable --quiet "$unit"
systemctl restart "$unit"
curl --silent --fail --output /dev/null --retry 20 --retry-delay 1 --retry-connrefused smtp://127.0.0.1:25 --request NOOP
