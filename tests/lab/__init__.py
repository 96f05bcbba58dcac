"""Tests on real lab hosts.

gevent replaces blocking calls before anything else imports them, as the command line does.
"""

from gevent import monkey

monkey.patch_all()
