"""The author's own machines that are reached by ssh, in the spelling of settings and options: `ssh:HOST`."""

from __future__ import annotations

import re

PREFIX = "ssh:"
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,254}")
_PYTHON = re.compile(r"(?!-)[^'\"\\!$`\n\r\0]*")


def host_of(place: str) -> str:
    """Return the host of `ssh:HOST`, empty for every other place."""
    return place.removeprefix(PREFIX) if place.startswith(PREFIX) else ""


def host(text: str) -> str:
    """Return the name of a host, as ssh knows it. Raises ValueError with one sentence."""
    name = text.removeprefix(PREFIX)
    if _HOST.fullmatch(name):
        return name
    raise ValueError(
        f"{text!r:.80} is not the name of a host: write ssh:NAME or ssh:USER@NAME, with letters, digits and . _ - + only, not "
        "beginning with -; a port, an IPv6 address or another option goes into ~/.ssh/config, under a Host of that name"
    )


def place(text: str) -> str:
    """Return a place where kernels run, as the setting `runner` has it. Raises ValueError with one sentence."""
    if text.startswith(PREFIX):
        return PREFIX + host(text)
    if text in ("auto", "local", "modal"):
        return text
    raise ValueError(f"{text!r:.60} is not one of auto, local, modal, ssh:HOST")


def program(text: str) -> str:
    """Return the path of a program on a host: it becomes a word of a shell there. Raises ValueError with one sentence."""
    if _PYTHON.fullmatch(text):
        return text
    raise ValueError(f"{text!r:.60} holds one of ' \" \\ ! $ ` or begins with -, which no path may here")
