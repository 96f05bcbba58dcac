#!/bin/sh
# Seeds the runtime's memory where there is none yet, and installs the skills that every tenant has.
# OWNER_NAME, BUSINESS, TRADE, PAGE_HOST and FORWARDING_ADDRESS come from the registry.
set -eu
cd "$(dirname "$0")"
memories=/srv/tenant/home/memories

seed() { # NAME: standard input becomes a memory file, unless the runtime has one already
    [ ! -e "$memories/$1" ] || return 0
    cat > "$1"
    install -o hermes -g hermes -m 0600 "$1" "$memories/$1.partial"
    sync "$memories/$1.partial"
    mv -f "$memories/$1.partial" "$memories/$1"
}

# The runtime separates its notes by a line with this one sign.
printf '%s\n§\n%s\n' \
    "The owner is $OWNER_NAME of $BUSINESS (trade: $TRADE)." \
    "Mail for the owner goes to $FORWARDING_ADDRESS." | seed USER.md
printf '%s\n§\n%s\n' \
    "The owner's pages are at $PAGE_HOST, their files in /srv/tenant/pages." \
    "Guides for pages and forms are in /srv/tenant/guides; read the one that fits first." | seed MEMORY.md

find skills -type f | while read -r file; do
    target="/srv/tenant/$file"
    install -d "$(dirname "$target")"
    install -o root -g root -m 0644 "$file" "$target.partial"
    sync "$target.partial"
    mv -f "$target.partial" "$target"
done
