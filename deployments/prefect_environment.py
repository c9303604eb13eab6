"""What a Prefect client must find in its environment. In: settings and addresses. Out: variables; sets none itself.

They count when they are set before `prefect` is imported.
"""

from __future__ import annotations

from collections.abc import Mapping

from deployments.home import ServiceHome, make_private_directory
from deployments.services import Addresses
from memory_core.errors import ServiceError
from memory_core.settings import Settings

# A server that hangs would hold a caller for six minutes (60 s, six attempts); this gives up after half a minute.
_REQUEST_TIMEOUT_SECONDS = 10
_MAX_RETRIES = 2

_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    # Run logs go to the server; our own errors say the same on the terminal, without a traceback.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_API_REQUEST_TIMEOUT": str(_REQUEST_TIMEOUT_SECONDS),
    "PREFECT_CLIENT_MAX_RETRIES": str(_MAX_RETRIES),
}


def prefect_environment(
    settings: Settings, addresses: Addresses, *, present: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables for this process; `present` is its environment, whose own choices win for the user's own server.

    With PREFECT_API_URL set by the user, server, authentication and profile stay the user's. Else the server is ours,
    with a PREFECT_HOME of its own, so that no profile and no key of the user's reaches it.

    Raises:
        ServiceError: the addresses are of a lease without Prefect.
    """
    if addresses.prefect_api_url is None:
        raise ServiceError("The lease does not include Prefect. Acquire it with Service.PREFECT among its needs.")
    if not settings.starts_prefect:
        kept = {name: value for name, value in _QUIET.items() if name not in (present or {})}
        return {**kept, "DO_NOT_TRACK": "1", "PREFECT_API_URL": addresses.prefect_api_url}
    home = make_private_directory(ServiceHome(settings.memory_home).directory / "prefect-client")
    return {
        **_QUIET,
        "PREFECT_API_URL": addresses.prefect_api_url,
        "PREFECT_API_AUTH_STRING": addresses.prefect_auth.get_secret_value() if addresses.prefect_auth else "",
        "PREFECT_API_KEY": "",
        "PREFECT_HOME": str(home),
        "PREFECT_PROFILE": "ephemeral",  # the name of Prefect's own default; the variables above win over it
        "PREFECT_PROFILES_PATH": str(home / "profiles.toml"),
        "PREFECT_UI_URL": addresses.prefect_ui_url or "",
        # The server is of the very version that this process has installed.
        "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false",
    }
