"""Settings in, the limits and the width of the chosen model out. Pure; a setting wins over what is published."""

from __future__ import annotations

from memory_core.embedding_ports import ProviderLimits
from memory_core.errors import ConfigError
from memory_core.settings import Settings

# For a model that is not known here: what servers near by take as they come (TEI: 32 texts, 16,384 tokens).
UNKNOWN_REQUEST_TOKENS = 16_384
UNKNOWN_REQUEST_TEXTS = 32


def limits_of(settings: Settings) -> ProviderLimits:
    """What a request to the chosen model may hold. The longest text of a model that is not known is not known."""
    known = settings.known_model
    window = settings.embedding_text_tokens or (known.window_tokens if known else None)
    return ProviderLimits(
        request_tokens=settings.embedding_request_tokens or (known.request_tokens if known else UNKNOWN_REQUEST_TOKENS),
        request_texts=settings.embedding_request_texts or (known.request_texts if known else UNKNOWN_REQUEST_TEXTS),
        request_groups=settings.embedding_batch_size or (known.request_groups if known else None),
        group_tokens=window if known is not None and known.is_contextual else None,
        text_tokens=window,
    )


def width_of(settings: Settings) -> int:
    """The width of the chosen model's vectors.

    Raises:
        ConfigError: the model is not known here and no width is set. (`load_settings` says so first.)
    """
    known = settings.known_model
    width = settings.embedding_dimensions or (known.default_width if known else None)
    if width is None:
        raise ConfigError("EMBEDDING_DIMENSIONS: the chosen EMBEDDING_MODEL is not known here; set its width.")
    return width
