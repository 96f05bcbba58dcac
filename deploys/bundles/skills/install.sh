#!/bin/sh
# Puts the skills of every owner where the runtime looks for skills that it may read and not change.
set -eu
cd "$(dirname "$0")"

find skills -type f | while read -r file; do
    target="/srv/tenant/$file"
    install -d "$(dirname "$target")"
    install -o root -g root -m 0644 "$file" "$target.partial"
    sync "$target.partial"
    mv -f "$target.partial" "$target"
done
