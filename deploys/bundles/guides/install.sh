#!/bin/sh
# Puts the guides where the assistant reads them; those of the TRADE only where it is the tenant's.
set -eu
cd "$(dirname "$0")"

publish() { # FROM TO: a reader sees the old file or the new one
    install -o root -g root -m 0644 "$1" "$2.partial"
    sync "$2.partial"
    mv -f "$2.partial" "$2"
}

for file in guides/*; do
    publish "$file" "/srv/tenant/$file"
done
if [ "$TRADE" = real-estate ]; then
    for file in real-estate/*; do
        publish "$file" "/srv/tenant/guides/${file##*/}"
    done
fi
