"""Mail intake: takes mail for the tenant's forwarding address and puts it into the owner's inbox.

Every other recipient is refused, so that this is never a relay. A mail is accepted only when its raw
text and its inbox item are on the disk; if that fails the sender is told to try again.
"""

import argparse
import asyncio
import email
import email.policy
import json
import os
import pathlib
import secrets
import subprocess
import sys

from aiosmtpd.smtp import SMTP

LIMIT_BYTES = 10 * 1024 * 1024
INBOX = "/usr/local/bin/tenant-inbox"


class Intake:
    """aiosmtpd's handler; `config` names the file with the address, read anew for each recipient."""

    def __init__(self, config, directory):
        self.config, self.directory = config, directory

    async def handle_RCPT(self, server, session, envelope, address, options):
        try:
            wanted = json.loads(self.config.read_text())["address"]
        except (OSError, ValueError, KeyError):
            return "451 4.3.5 The address of this server is not known yet"
        if address.casefold() != wanted.casefold():
            return "550 5.1.1 No such recipient here"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"

    async def handle_DATA(self, server, session, envelope):
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.keep, envelope)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"a mail could not be kept: {error}", file=sys.stderr, flush=True)
            return "451 4.3.0 Try again later"
        return "250 2.0.0 Kept"

    def keep(self, envelope):
        """Keep the raw mail, then its item; the item names the file."""
        path = self.directory / f"{secrets.token_hex(8)}.eml"
        with open(path, "xb") as file:
            file.write(envelope.content)
            file.flush()
            os.fsync(file.fileno())
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        body = mail.get_body(("plain", "html"))
        text = f"From: {mail['From'] or envelope.mail_from}\nFile: {path}\n\n{content_of(body)}"
        command = [INBOX, "add", "mail", one_line(mail["Subject"] or "(no subject)")]
        try:
            subprocess.run(command, input=text.encode(errors="replace"), check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError):
            path.unlink()  # its sender keeps it and tries again
            raise


def content_of(body):
    """The text of a part; what calls itself text and cannot be read as such is left to the raw file."""
    try:
        return body.get_content().replace("\r\n", "\n") if body else ""
    except (LookupError, ValueError):
        return ""


def one_line(text):
    return "".join(character if character.isprintable() else " " for character in text)[:200]


async def serve(options):
    handler = Intake(options.config, options.directory)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(handler, data_size_limit=LIMIT_BYTES, enable_SMTPUTF8=True, ident="Mail intake"),
        options.address,
        options.port,
    )
    await server.serve_forever()


def main():
    """Serve until the unit is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=25)
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
