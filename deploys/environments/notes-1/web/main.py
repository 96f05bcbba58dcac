"""The web program: the notes as a page, each with a link to its object."""

from __future__ import annotations

import html
import re

from service import Handler, Service

SHOWN = 100
_NOTE = re.compile(r"/notes/([0-9]{1,18})\Z", re.ASCII)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Notes</title></head>
<body><h1>Notes</h1><ul>
{items}
</ul></body></html>
"""


class Web(Handler):
    def do_GET(self) -> None:
        note = _NOTE.match(self.path)
        if self.path == "/health":
            self.health()
        elif self.path == "/":
            self.answer(200, self.page().encode(), "text/html; charset=utf-8")
        elif note is not None and (key := self.object_of(int(note[1]))) is not None:
            self.answer(200, self.service.bucket.get(key), "text/plain; charset=utf-8")
        else:
            self.answer(404, {"error": "notFound"})

    def page(self) -> str:
        with self.service.database.work() as cursor:
            cursor.execute("SELECT id, text FROM notes ORDER BY id DESC LIMIT %s", (SHOWN,))
            rows = cursor.fetchall()
        items = (f'<li><a href="/notes/{number}">{html.escape(text)}</a></li>' for number, text in rows)
        return _PAGE.format(items="\n".join(items))

    def object_of(self, number: int) -> str | None:
        with self.service.database.work() as cursor:
            cursor.execute("SELECT object FROM notes WHERE id = %s", (number,))
            row = cursor.fetchone()
        return row[0] if row else None


if __name__ == "__main__":
    Service("web").run(Web)
