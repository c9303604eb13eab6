"""How vendors differ: header of the key, shape of an error body, wordings of "too much". Data for FakeProvider.

The wordings are those of the vendors' issue trackers and sources; no service was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Payload: TypeAlias = Mapping[str, Any]


def _openai_body(status: int, message: str, code: str | None) -> Payload:
    del status
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _azure_body(status: int, message: str, code: str | None) -> Payload:
    return {"error": {"code": code or str(status), "message": message}}


def _ollama_body(status: int, message: str, code: str | None) -> Payload:
    del status, code
    return {"error": {"message": message, "type": "api_error", "param": None, "code": None}}


def _vllm_body(status: int, message: str, code: str | None) -> Payload:
    del code
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}


def _tei_body(status: int, message: str, code: str | None) -> Payload:
    return {"message": message, "code": status, "type": code or "Validation"}


def _voyage_body(status: int, message: str, code: str | None) -> Payload:
    del status, code
    return {"detail": message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One kind of server. `{limit}` and `{sent}` stand in the wordings for numbers.

    `too_many_tokens` is said of a request, `too_long` of a single text, `too_many_texts` of their number.
    """

    name: str
    error_body: Callable[[int, str, str | None], Payload]
    too_many_tokens: str
    too_long: str
    too_many_texts: str
    status_of_size: int = 400
    key_header: str = "authorization"
    knows_base64: bool = True
    refuses_dimensions: str | None = None


OPENAI = Vendor(
    name="openai",
    error_body=_openai_body,
    too_many_tokens="Requested {sent} tokens, max {limit} tokens per request",
    too_long="This model's maximum context length is {limit} tokens, however you requested {sent} tokens "
    "({sent} in your prompt; 0 for the completion). Please reduce your prompt; or completion length.",
    too_many_texts="Invalid 'input': array too long. Expected an array with maximum length {limit}, but got an array "
    "with length {sent} instead.",
)
AZURE = Vendor(
    name="azure",
    error_body=_azure_body,
    too_many_tokens="Requested {sent} tokens, max {limit} tokens per request",
    too_long="This model's maximum context length is {limit} tokens, however you requested {sent} tokens "
    "({sent} in your prompt; 0 for the completion). Please reduce your prompt; or completion length.",
    too_many_texts="Too many inputs. The max number of inputs is {limit}.  We hope to increase the number of inputs "
    "per request soon.",
    key_header="api-key",
)
OLLAMA = Vendor(
    name="ollama",
    error_body=_ollama_body,
    too_many_tokens="the input length exceeds the context length",
    too_long="the input length exceeds the context length",
    too_many_texts="the input length exceeds the context length",
    knows_base64=False,
)
VLLM = Vendor(
    name="vllm",
    error_body=_vllm_body,
    too_many_tokens="This model's maximum context length is {limit} tokens. However, you requested {sent} tokens in "
    "the input for embedding generation. Please reduce the length of the input.",
    too_long="This model's maximum context length is {limit} tokens. However, you requested {sent} tokens in the "
    "input for embedding generation. Please reduce the length of the input.",
    too_many_texts="batch size {sent} > maximum allowed batch size {limit}",
    refuses_dimensions='Model "fake" does not support matryoshka representation, changing output dimensions will lead '
    "to poor results.",
)
TEI = Vendor(
    name="tei",
    error_body=_tei_body,
    too_many_tokens="`inputs` must have less than {limit} tokens. Given: {sent}",
    too_long="`inputs` must have less than {limit} tokens. Given: {sent}",
    too_many_texts="batch size {sent} > maximum allowed batch size {limit}",
    status_of_size=413,
)
LLAMA_CPP = Vendor(
    name="llama.cpp",
    error_body=_vllm_body,
    too_many_tokens="input ({sent} tokens) is too large to process. increase the physical batch size (current batch "
    "size: {limit})",
    too_long="input ({sent} tokens) is too large to process. increase the physical batch size (current batch size: "
    "{limit})",
    too_many_texts="input is too large to process. increase the physical batch size",
    status_of_size=500,
)
VOYAGE = Vendor(
    name="voyage",
    error_body=_voyage_body,
    too_many_tokens="Request to model 'fake' failed. The max allowed tokens per submitted batch is {limit}. Your "
    "batch has {sent} tokens after truncation. Please lower the number of tokens in the batch.",
    too_long="Request to model 'fake' failed. The example at index 0 in your batch has too many tokens and does not "
    "fit into the model's context window of {limit} tokens. Please lower the number of tokens in the listed "
    "example(s) or use truncation.",
    too_many_texts="Request to model 'fake' failed. The batch size limit is {limit}. Your batch size is {sent}.",
)
COMPATIBLE = (OPENAI, AZURE, OLLAMA, VLLM, TEI, LLAMA_CPP)
