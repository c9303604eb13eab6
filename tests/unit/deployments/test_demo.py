"""What the demonstration's commands find in their environment."""

from __future__ import annotations

from deployments.demo import own_environment
from memory_core.settings import Settings


def test_the_demo_cannot_write_into_the_users_database() -> None:
    """No setting of the user's reaches it but what is said about the machine."""
    theirs = {spec.alias or "": "theirs" for spec in Settings.model_fields.values()}
    found = own_environment(
        {**theirs, "PREFECT_API_KEY": "theirs", "mongodb_uri": "theirs", "PATH": "/bin"}, home="/demo"
    )
    assert found == {
        "PATH": "/bin",
        "MEMORY_HOME": "/demo",
        "MEMORY_MONGOD": "theirs",
        "MEMORY_MONGOD_CACHE_GB": "theirs",
    }
