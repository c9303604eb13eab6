"""What is published of paid embedding models: widths, limits, prices. Data only.

Prices are US dollars for a million input tokens; a setting overrides them. All figures were read on 1 December 2026 in
copies of the providers' documentation: OpenAI's API reference (8,192 tokens a text and 300,000 a request for all
embedding models), Voyage's and MongoDB's pages on models and prices. docs/providers.md has them as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_VOYAGE_WIDTHS = (256, 512, 1_024, 2_048)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model's widths (`widths` are the allowed ones, a pair of bounds where `is_range`), limits and price.

    `window_tokens` is the longest text, or the longest document of a contextual model. `is_contextual`: the vector of a
    text depends on the document around it.
    """

    default_width: int
    widths: tuple[int, ...]
    window_tokens: int
    request_tokens: int
    request_texts: int
    usd_per_million: float
    request_groups: int | None = None
    is_range: bool = False
    is_contextual: bool = False

    def allows(self, width: int) -> bool:
        """Whether the model gives vectors of this width."""
        return self.widths[0] <= width <= self.widths[-1] if self.is_range else width in self.widths

    @property
    def widths_text(self) -> str:
        """The allowed widths for a message."""
        return " to ".join(map(str, self.widths)) if self.is_range else ", ".join(map(str, self.widths))


def _openai(width: int, usd: float, *, is_range: bool) -> KnownModel:
    return KnownModel(
        default_width=width,
        widths=(1, width) if is_range else (width,),
        window_tokens=8_192,
        request_tokens=300_000,
        request_texts=2_048,
        usd_per_million=usd,
        is_range=is_range,
    )


def _voyage(
    request_tokens: int, usd: float, *, widths: tuple[int, ...] = _VOYAGE_WIDTHS, window_tokens: int = 32_000
) -> KnownModel:
    return KnownModel(
        default_width=1_024,
        widths=widths,
        window_tokens=window_tokens,
        request_tokens=request_tokens,
        request_texts=1_000,
        usd_per_million=usd,
    )


def _voyage_contextual(usd: float) -> KnownModel:
    # A request may hold 120,000 tokens only where the server chunks; with chunks of ours it is 32,000 over all groups.
    return KnownModel(
        default_width=1_024,
        widths=_VOYAGE_WIDTHS,
        window_tokens=32_000,
        request_tokens=32_000,
        request_texts=16_000,
        request_groups=1_000,
        usd_per_million=usd,
        is_contextual=True,
    )


OPENAI_MODELS: Mapping[str, KnownModel] = MappingProxyType(
    {
        "text-embedding-3-small": _openai(1_536, 0.02, is_range=True),
        "text-embedding-3-large": _openai(3_072, 0.13, is_range=True),
        "text-embedding-ada-002": _openai(1_536, 0.10, is_range=False),
    }
)

VOYAGE_MODELS: Mapping[str, KnownModel] = MappingProxyType(
    {
        "voyage-context-4": _voyage_contextual(0.12),
        "voyage-context-3": _voyage_contextual(0.18),
        "voyage-4-large": _voyage(120_000, 0.12),
        "voyage-4": _voyage(320_000, 0.06),
        "voyage-4-lite": _voyage(1_000_000, 0.02),
        "voyage-3.5": _voyage(320_000, 0.06),
        "voyage-3.5-lite": _voyage(1_000_000, 0.02),
        "voyage-3-large": _voyage(120_000, 0.18),
        "voyage-code-3": _voyage(120_000, 0.18),
        "voyage-finance-2": _voyage(120_000, 0.12, widths=(1_024,)),
        "voyage-law-2": _voyage(120_000, 0.12, widths=(1_024,), window_tokens=16_000),
        "voyage-multilingual-2": _voyage(120_000, 0.12, widths=(1_024,)),
    }
)
