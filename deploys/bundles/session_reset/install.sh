#!/bin/sh
# Declares which sessions end at the gateway's next start, and installs the program that ends them.
# RESET and SOURCES come from the release.
set -eu
cd "$(dirname "$0")"

publish() { # FROM TO MODE: a reader sees the old file or the new one
    install -o root -g root -m "$3" "$1" "$2.partial"
    sync "$2.partial"
    mv -f "$2.partial" "$2"
}

install -d /opt/tenant-sessions
publish end.py /opt/tenant-sessions/end.py 0644
printf '%s\n' "$RESET" "$SOURCES" > session-reset
publish session-reset /etc/tenant/session-reset 0644
