#!/bin/sh
# Installs the look of the pages, and a first page where the owner has none yet.
set -eu
cd "$(dirname "$0")"
pages=/srv/tenant/pages

publish() { # FROM TO OWNER: a reader sees the old file or the new one
    install -o "$3" -g caddy -m 0640 "$1" "$2.partial"
    sync "$2.partial"
    mv -f "$2.partial" "$2"
}

install -d -o root -g caddy -m 0750 "$pages/look"
for file in look/*; do
    publish "$file" "$pages/$file" root
done

if [ ! -e "$pages/index.html" ]; then
    python3 -I fill.py < index.html > filled.html
    publish filled.html "$pages/index.html" hermes
fi
