"""What a provider answered and refused in, how much to send it at once out. Pure.

Nothing that is learned decides where a contextual model's document is windowed: it would be windowed otherwise by the
next process. A text of a flat model is cut by a limit that the provider named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from memory_core.embedding_ports import ProviderLimits

START_FACTOR: Final = 1.1  # a provider's tokens for one of ours, before anything is known
_MARGIN: Final = 1.05  # requests of other texts than those that were observed
_LARGEST_FACTOR: Final = 16.0  # a claim beyond this is not about tokens
_SMALLEST_FACTOR: Final = 0.25
_FORGETTING: Final = 0.1  # of the way down to a smaller observation; up at once
_FEWEST_TOKENS: Final = 50  # marks around a text outweigh what is observed of fewer
_SMALLEST_LIMIT: Final = 64  # a limit below this is a misread message


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a process knows of a provider beyond its published limits.

    `factor` is the provider's tokens for one of ours, with a margin. `request_limit` and `unit_limit` are limits that a
    refusal named, in the provider's tokens. Where it named none, `refused` is the smallest request that it refused and
    `accepted` the largest that it took, in our tokens.
    """

    factor: float = START_FACTOR
    request_limit: int | None = None
    unit_limit: int | None = None
    refused: int | None = None
    accepted: int = 0

    def estimate(self, tokens: int) -> int:
        """Our tokens as the provider will probably count them."""
        return math.ceil(tokens * self.factor)

    def observed(self, tokens: int, provider_tokens: int | None) -> Calibration:
        """After an answer to a request of so many of our tokens: the factor goes up at once and down slowly."""
        learned = replace(self, accepted=max(self.accepted, tokens))
        if not provider_tokens or tokens < _FEWEST_TOKENS:
            return learned
        target = _bound(provider_tokens / tokens * _MARGIN)
        step = 1.0 if target > self.factor else _FORGETTING
        return replace(learned, factor=self.factor + step * (target - self.factor))

    def refused_at(
        self, tokens: int, *, units: int, limits: ProviderLimits, limit: int | None, sent: int | None
    ) -> Calibration:
        """After a refusal of so many of our tokens in so many units, with the provider's own numbers where it gave any.

        They are about one input of many, or about the whole request: a limit up to the published window of an input is
        the window's, and the count is the whole request's where it is about ours.
        """
        is_one = units == 1
        is_of_all = sent is not None and 2 * sent >= self.estimate(tokens)
        learned = self
        if sent is not None and is_of_all and tokens:
            learned = replace(learned, factor=max(learned.factor, _bound(sent / tokens * _MARGIN)))
        if limit is None or limit < _SMALLEST_LIMIT:
            return learned if is_one else replace(learned, refused=min(tokens, self.refused or tokens))
        window = _smaller(limits.text_tokens, limits.group_tokens)
        if is_one or (window is not None and limit <= window * _MARGIN):
            return replace(learned, unit_limit=at_most(self.unit_limit, limit))
        if window is not None or is_of_all:
            return replace(learned, request_limit=at_most(self.request_limit, limit))
        return replace(learned, refused=min(tokens, self.refused or tokens))

    @property
    def has_refusals(self) -> bool:
        """Whether anything smaller than the published limits is known."""
        return (self.request_limit, self.unit_limit, self.refused) != (None, None, None)

    def narrow(self, limits: ProviderLimits) -> ProviderLimits:
        """The published limits with what refusals named."""
        return replace(
            limits,
            request_tokens=at_most(self.request_limit, limits.request_tokens),
            group_tokens=_smaller(limits.group_tokens, self.unit_limit),
            text_tokens=_smaller(limits.text_tokens, self.unit_limit),
        )

    def room(self, limits: ProviderLimits) -> int:
        """How many of our tokens to pack in one request."""
        room = int(self.narrow(limits).request_tokens / self.factor)
        if self.refused is not None:
            room = min(room, max(self.refused // 2, self.accepted))
        return max(room, 1)


def _bound(factor: float) -> float:
    return min(max(factor, _SMALLEST_FACTOR), _LARGEST_FACTOR)


def at_most(bound: int | None, number: int) -> int:
    """The number, or the bound where there is a smaller one."""
    return number if bound is None else min(bound, number)


def _smaller(first: int | None, second: int | None) -> int | None:
    return first if second is None else at_most(first, second)
