"""Puts the business's name into the first page, as text and never as markup."""

import html
import os
import sys

sys.stdout.write(sys.stdin.read().replace("BUSINESS", html.escape(os.environ["BUSINESS"])))
