"""Where a provider is and how its key travels. Values only: nothing is sent here and no setting is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from memory_core.errors import ConfigError, register_secret

_HEADER_TEXT = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One model at one address, and the names of the variables that a message tells to set.

    `who` begins messages ("The embedding provider openai"). `key_header` is `authorization` (as a bearer) or the header
    that takes the bare key. Without a key neither is sent.

    Raises:
        ConfigError: the address has no host, or the key has characters that no header can carry.
    """

    who: str
    model: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    key_header: str = "authorization"
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    key_variable: str
    url_variable: str
    model_variable: str
    size_variables: str

    def __post_init__(self) -> None:
        if not has_host(self.base_url):
            raise ConfigError(f"{self.url_variable} names no server. Write it as https://host/v1.")
        if self.key is not None and not _HEADER_TEXT.fullmatch(self.key):
            raise ConfigError(
                f"{self.key_variable} has blanks or characters that no key has (a quotation mark, perhaps). Copy it "
                "again."
            )
        register_secret(self.key)

    @property
    def key_headers(self) -> dict[str, str]:
        """The one header that carries the key; empty where there is none."""
        if self.key is None:
            return {}
        is_bearer = self.key_header == "authorization"
        return {self.key_header: f"Bearer {self.key}" if is_bearer else self.key}


def has_host(url: str) -> bool:
    """Whether the address is one that can be connected to."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def is_same_server(url: str, other: str) -> bool:
    """Whether two addresses are of one server: a key of the one may be shown to the other."""
    here, there = urlsplit(url), urlsplit(other)
    return (here.scheme, here.netloc.lower()) == (there.scheme, there.netloc.lower())
