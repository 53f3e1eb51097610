"""Whose server an address names, as far as the address tells."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

PRIVATE_NAMES = (".local", ".lan", ".internal", ".home", ".home.arpa", ".localhost")


def is_private(target: str) -> bool:
    """Whether the host of ``target`` (a URL or HOST:PORT) is this machine or on a private network.

    A name without dots is one of the local network; other names count as public, whatever they
    resolve to: better to ask for a budget once too often.
    """
    address = target if "//" in target else f"//{target}"
    try:
        host = (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host or host.lower().endswith(PRIVATE_NAMES)
    return ip.is_private or ip.is_loopback or ip.is_link_local
