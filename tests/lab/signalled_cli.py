"""Runs the command line, which signals itself: ``signalled_cli.py SIGNAL WORDS ARGUMENT…``.

It does so as soon as it has told a line of progress that holds WORDS. A test that reads the line and sends the signal
would do so some time later, when a fast command has ended.
"""

from __future__ import annotations

import os
import sys

from engine.cli.main import main  # makes sockets cooperative, and so comes first
from engine.cli.progress import Board, News

take = Board.take


def signal_self_at(number: int, words: str) -> None:
    def take_and_look(board: Board, news: News) -> None:
        take(board, news)
        if words in str(news):
            Board.take = take  # type: ignore[method-assign]
            print(news, file=sys.stderr, flush=True)
            os.kill(os.getpid(), number)

    Board.take = take_and_look  # type: ignore[method-assign]


if __name__ == "__main__":
    signal_self_at(int(sys.argv[1]), sys.argv[2])
    del sys.argv[1:3]
    main()
