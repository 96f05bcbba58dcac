#!/bin/sh
# Installs the rotation of the tenant's logs, once logrotate has said that it can read it.
set -eu
cd "$(dirname "$0")"

publish() { # FROM TO: a reader sees the old file or the new one
    install -o root -g root -m 0644 "$1" "$2.partial"
    sync "$2.partial"
    mv -f "$2.partial" "$2"
}

chmod 0644 logrotate.conf
logrotate --debug logrotate.conf
install -d /etc/systemd/journald.conf.d
publish journald.conf /etc/systemd/journald.conf.d/tenant.conf
publish logrotate.conf /etc/logrotate.d/tenant
systemctl enable --now --quiet logrotate.timer
systemctl try-restart systemd-journald.service
