"""Settings: everything wrong is told at once, nothing secret is told at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memory_core import errors
from memory_core.embedding_settings import EmbeddingProvider
from memory_core.errors import ConfigError, scrub
from memory_core.settings import LogLevel, Settings, load_settings

MARKER = "Zq7xMARKERx"
URI = "mongodb://ann:hunter2hunter2@db.example.org:27017/?authSource=admin"

Env = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(errors, "_known_secrets", set[str]())
    monkeypatch.chdir(tmp_path)


def problems_of(monkeypatch: Env, **variables: str) -> str:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as refusal:
        load_settings()
    return refusal.value.message


def test_nothing_has_to_be_set() -> None:
    """On one machine everything runs without a variable, and starts its own services."""
    settings = load_settings()
    assert (settings.chunk_size_tokens, settings.chunk_overlap_tokens, settings.chunk_min_tokens) == (400, 0, 32)
    assert (settings.search_default_limit, settings.search_max_limit, settings.search_vector_weight) == (10, 50, 0.5)
    assert settings.embedding_provider is EmbeddingProvider.LOCAL
    assert settings.starts_mongodb
    assert settings.starts_prefect
    assert settings.memory_home.is_absolute()


def test_every_variable_reaches_its_setting(monkeypatch: Env) -> None:
    """One value each that is not its default."""
    given: dict[str, Any] = {
        "MEMORY_HOME": "/srv/memory",
        "MEMORY_ROOTS": f"/a{os.pathsep} /b ",
        "MEMORY_MONGOD": "/opt/mongod",
        "MEMORY_MONGOD_CACHE_GB": 1.5,
        "MEMORY_IDLE_STOP_SECONDS": 60,
        "MEMORY_BATCH_DOCUMENTS": 7,
        "MEMORY_BATCH_CHARS": 9_000,
        "MEMORY_VERSIONS_KEPT": 2,
        "MEMORY_TRASH_DAYS": 1,
        "MEMORY_TOMBSTONE_DAYS": 100,
        "MEMORY_SUBMISSION_DAYS": 3,
        "MEMORY_FAILED_SUBMISSION_DAYS": 9,
        "MONGODB_URI": URI,
        "MONGODB_DB_NAME": "other",
        "MONGODB_MAX_POOL_SIZE": 3,
        "MONGODB_SERVER_SELECTION_TIMEOUT_MS": 500,
        "MIGRATE_MONGODB_URI": URI,
        "PREFECT_API_URL": "http://127.0.0.1:4200/api",
        "EMBEDDING_PROVIDER": "voyage",
        "EMBEDDING_MODEL": "voyage-context-4",
        "EMBEDDING_DIMENSIONS": 512,
        "EMBEDDING_SEND_DIMENSIONS": True,
        "EMBEDDING_CONTEXT": "prefix",
        "EMBEDDING_ENCODING": "float",
        "OPENAI_API_KEY": "sk-the-key-of-openai",
        "OPENAI_BASE_URL": "http://127.0.0.1:8080/v1",
        "OPENAI_API_VERSION": "2024-10-21",
        "VOYAGE_API_KEY": "pa-the-key-of-voyage",
        "VOYAGE_API_BASE_URL": "http://127.0.0.1:8081/v1",
        "CONTEXT_MODEL": "a-chat-model",
        "CONTEXT_BASE_URL": "http://127.0.0.1:8082/v1",
        "CONTEXT_API_KEY": "sk-the-key-of-the-chat",
        "CONTEXT_DOCUMENT_TOKENS": 5_000,
        "EMBEDDING_BATCH_SIZE": 8,
        "EMBEDDING_REQUEST_TEXTS": 90,
        "EMBEDDING_REQUEST_TOKENS": 9_000,
        "EMBEDDING_TEXT_TOKENS": 800,
        "EMBEDDING_CONCURRENCY": 3,
        "EMBEDDING_TOKENS_PER_MINUTE": 50_000,
        "EMBEDDING_REQUESTS_PER_MINUTE": 60,
        "EMBEDDING_TIMEOUT_MS": 5_000,
        "EMBEDDING_MAX_RETRIES": 2,
        "EMBEDDING_DEADLINE_SECONDS": 90,
        "EMBEDDING_CACHE_DAYS": 3,
        "EMBEDDING_CACHE_MB": 64,
        "EMBEDDING_PRICES": "a-model=0.5,other=2",
        "CHUNK_SIZE_TOKENS": 100,
        "CHUNK_OVERLAP_TOKENS": 5,
        "CHUNK_MIN_TOKENS": 6,
        "SEARCH_DEFAULT_LIMIT": 4,
        "SEARCH_MAX_LIMIT": 6,
        "SEARCH_HYBRID_ENABLED": False,
        "SEARCH_VECTOR_WEIGHT": 0.25,
        "SEARCH_LANGUAGE": "german",
        "LOG_LEVEL": "warn",
        "LOG_PRETTY": True,
    }
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    shown = load_settings().redacted_summary()
    secrets = ("MONGODB_URI", "MIGRATE_MONGODB_URI", "OPENAI_API_KEY", "VOYAGE_API_KEY", "CONTEXT_API_KEY")
    assert shown == {
        **given,
        **dict.fromkeys(secrets, "[secret]"),
        "MEMORY_ROOTS": ["/a", "/b"],
        "EMBEDDING_PRICES": {"a-model": 0.5, "other": 2.0},
    }
    assert set(given) == {spec.alias for spec in Settings.model_fields.values()}


def test_the_environment_wins_over_the_file_and_arguments_over_both(monkeypatch: Env, tmp_path: Path) -> None:
    """An empty variable of the environment is none."""
    file = tmp_path / ".env"
    file.write_text("CHUNK_SIZE_TOKENS=100\nCHUNK_MIN_TOKENS=\nSEARCH_MAX_LIMIT=30\nOTHER=1\nLOG_LEVEL=debug\n")
    monkeypatch.setenv("CHUNK_SIZE_TOKENS", "200")
    monkeypatch.setenv("LOG_LEVEL", "")
    settings = load_settings(env_file=file, SEARCH_MAX_LIMIT=40)
    assert (settings.chunk_size_tokens, settings.chunk_min_tokens, settings.search_max_limit) == (200, 32, 40)
    assert settings.log_level is LogLevel.DEBUG


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_a_blank_value_means_the_default(monkeypatch: Env, blank: str) -> None:
    """For every variable: a copied example file with blank lines starts."""
    expected = load_settings()
    for spec in Settings.model_fields.values():
        monkeypatch.setenv(spec.alias or "", blank)
    assert load_settings() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [(text, True) for text in ("1", "true", "TRUE", " yes ", "On")]
    + [(text, False) for text in ("0", "false", "No", " off", "FALSE")],
)
def test_a_switch_has_many_spellings(monkeypatch: Env, text: str, expected: object) -> None:
    """Trimmed, in any case."""
    monkeypatch.setenv("LOG_PRETTY", text)
    assert load_settings().log_pretty is expected


def test_aliases_and_blanks_around_a_value_are_folded(monkeypatch: Env) -> None:
    """`fake` is the hash embedder; a trailing blank in an address does no harm."""
    monkeypatch.setenv("EMBEDDING_PROVIDER", " FAKE ")
    monkeypatch.setenv("LOG_LEVEL", " Warn")
    monkeypatch.setenv("MONGODB_URI", f" {URI} ")
    settings = load_settings()
    assert settings.embedding_provider is EmbeddingProvider.HASH
    assert settings.log_level is LogLevel.WARN
    assert settings.mongodb_uri is not None
    assert settings.mongodb_uri.get_secret_value() == URI


def test_a_tilde_is_the_users_home(monkeypatch: Env, tmp_path: Path) -> None:
    """In every path; a user that this machine does not know is a problem like others."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MEMORY_HOME", "~/m")
    monkeypatch.setenv("MEMORY_ROOTS", "~/a")
    settings = load_settings()
    assert (settings.memory_home, settings.memory_roots) == (tmp_path / "m", (tmp_path / "a",))
    assert "MEMORY_HOME: names the home of a user" in problems_of(monkeypatch, MEMORY_HOME="~nobody-here-zz/m")


def test_all_problems_are_told_at_once_and_no_value_is(monkeypatch: Env) -> None:
    """Wrong values, and what does not fit together among the right ones."""
    message = problems_of(
        monkeypatch,
        MONGODB_URI=f"http://{MARKER}",
        MIGRATE_MONGODB_URI=f"http://{MARKER}",
        MONGODB_DB_NAME=f"{MARKER}.$",
        MONGODB_MAX_POOL_SIZE=MARKER,
        PREFECT_API_URL=MARKER,
        EMBEDDING_PROVIDER=MARKER,
        LOG_LEVEL=MARKER,
        LOG_PRETTY=MARKER,
        SEARCH_VECTOR_WEIGHT="nan",
        MEMORY_TRASH_DAYS="-1",
        CHUNK_SIZE_TOKENS="64",
        CHUNK_OVERLAP_TOKENS="64",
        CHUNK_MIN_TOKENS="65",
        SEARCH_DEFAULT_LIMIT="20",
        SEARCH_MAX_LIMIT="10",
    )
    for name in (
        "MONGODB_URI: must begin with mongodb:// or mongodb+srv://",
        "MIGRATE_MONGODB_URI: must begin with mongodb:// or mongodb+srv://",
        "MONGODB_DB_NAME: ",
        "MONGODB_MAX_POOL_SIZE: ",
        "PREFECT_API_URL: must begin with http",
        "EMBEDDING_PROVIDER: must be local, openai, voyage or hash",
        "LOG_LEVEL: ",
        "LOG_PRETTY: ",
        "SEARCH_VECTOR_WEIGHT: ",
        "MEMORY_TRASH_DAYS: ",
        "CHUNK_OVERLAP_TOKENS: must be below CHUNK_SIZE_TOKENS (64)",
        "CHUNK_MIN_TOKENS: must not exceed CHUNK_SIZE_TOKENS (64)",
        "SEARCH_DEFAULT_LIMIT: must not exceed SEARCH_MAX_LIMIT (10)",
        ".env.example",
    ):
        assert name in message, name
    assert message.count("MEMORY_TRASH_DAYS") == 1
    assert MARKER not in message


def test_a_rule_about_a_bad_value_is_not_judged_by_its_default(monkeypatch: Env) -> None:
    """One mistake gives one sentence."""
    message = problems_of(monkeypatch, CHUNK_SIZE_TOKENS="many", CHUNK_MIN_TOKENS="500", CHUNK_OVERLAP_TOKENS="450")
    assert "CHUNK_SIZE_TOKENS: " in message
    assert "CHUNK_MIN_TOKENS" not in message
    assert "CHUNK_OVERLAP_TOKENS" not in message


@pytest.mark.parametrize(
    "name", ["a/b", "a\\b", "a.b", "a b", 'a"b', "a$b", "a*b", "a<b", "a:b", "a?b", "a|b", "x" * 64]
)
def test_a_database_name_that_mongodb_refuses_is_refused_at_the_start(monkeypatch: Env, name: str) -> None:
    """Not at the first write."""
    assert "MONGODB_DB_NAME: must have 1 to 63 characters" in problems_of(monkeypatch, MONGODB_DB_NAME=name)


def test_a_width_that_the_local_model_does_not_have_is_refused(monkeypatch: Env) -> None:
    """The hash embedder has any."""
    assert "EMBEDDING_DIMENSIONS: the local model has 384" in problems_of(monkeypatch, EMBEDDING_DIMENSIONS="512")
    monkeypatch.setenv("EMBEDDING_PROVIDER", "hash")
    assert load_settings().embedding_dimensions == 512


def test_the_summary_holds_no_secret_and_is_plain_json(monkeypatch: Env) -> None:
    """It goes into a log line at every start."""
    monkeypatch.setenv("MONGODB_URI", URI)
    monkeypatch.setenv("PREFECT_API_URL", "https://ann:hunter2hunter2@prefect.example.org/api")
    settings = load_settings()
    shown = json.dumps(settings.redacted_summary())
    assert "hunter2" not in shown
    assert "hunter2" not in repr(settings)[: repr(settings).find("prefect_api_url")]
    assert "local" in shown
    assert scrub(f"refused by {URI}") == "refused by [secret]"


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    """A `.env` that an editor saved in another encoding is a mistake of the settings."""
    file = tmp_path / ".env"
    file.write_bytes("LOG_LEVEL=größe".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"\.env is not UTF-8 \(byte 12\)"):
        load_settings(env_file=file)


@pytest.mark.parametrize("name", ["MEMORY_MONGOD", "memory_mongod"])
def test_a_file_of_any_directory_names_no_program(monkeypatch: Env, tmp_path: Path, name: str) -> None:
    """A `.env` may have come with an archive; a command that is run beside it must not start what it names."""
    file = tmp_path / ".env"
    file.write_text(f"{name}=/tmp/evil\n")
    with pytest.raises(ConfigError, match="MEMORY_MONGOD names a program"):
        load_settings(env_file=file)
    file.write_text(f"{name}=\n")
    monkeypatch.setenv("MEMORY_MONGOD", "/opt/mongod")
    assert load_settings(env_file=file).memory_mongod == Path("/opt/mongod")


def test_settings_do_not_change() -> None:
    """A setting is read once."""
    with pytest.raises(ValidationError):
        load_settings().chunk_size_tokens = 1  # pyright: ignore[reportAttributeAccessIssue] # that is the test
