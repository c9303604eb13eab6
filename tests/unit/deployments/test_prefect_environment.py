from pathlib import Path

import pytest
from pydantic import SecretStr

from deployments.prefect_environment import prefect_environment
from deployments.services import Addresses
from memory_core.errors import ServiceError
from memory_core.settings import load_settings


def test_our_server_is_used_with_a_home_of_its_own(tmp_path: Path) -> None:
    """No profile, key or telemetry of the user's Prefect takes part when the server is ours."""
    settings = load_settings(MEMORY_HOME=str(tmp_path / "m"), PREFECT_API_URL=None)
    ours = Addresses(prefect_api_url="http://127.0.0.1:1/api", prefect_auth=SecretStr("memory:pw"))
    found = prefect_environment(settings, ours, present={"PREFECT_API_KEY": "theirs"})
    assert found["PREFECT_API_URL"] == "http://127.0.0.1:1/api"
    assert found["PREFECT_API_AUTH_STRING"] == "memory:pw"
    assert found["PREFECT_API_KEY"] == ""
    assert found["DO_NOT_TRACK"] == "1"
    assert found["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] == "false"
    assert Path(found["PREFECT_HOME"]).is_relative_to(settings.memory_home)


def test_the_user_s_own_server_is_left_as_the_user_set_it_up(tmp_path: Path) -> None:
    """Server, authentication, profile and limits of a user's own Prefect are respected; telemetry stays off."""
    url = "https://prefect.example/api"
    settings = load_settings(MEMORY_HOME=str(tmp_path / "m"), PREFECT_API_URL=url)
    present = {"PREFECT_API_REQUEST_TIMEOUT": "120", "PREFECT_API_AUTH_STRING": "me:pw"}
    found = prefect_environment(settings, Addresses(prefect_api_url=url), present=present)
    assert found["PREFECT_API_URL"] == url
    assert found["DO_NOT_TRACK"] == "1"
    assert not {"PREFECT_API_AUTH_STRING", "PREFECT_API_KEY", "PREFECT_HOME", "PREFECT_PROFILE"} & set(found)
    assert "PREFECT_API_REQUEST_TIMEOUT" not in found
    assert not (tmp_path / "m").exists()


def test_a_lease_without_prefect_is_refused(tmp_path: Path) -> None:
    """A caller that forgot to ask for Prefect is told, instead of finding another server."""
    with pytest.raises(ServiceError, match=r"Service\.PREFECT"):
        prefect_environment(load_settings(MEMORY_HOME=str(tmp_path)), Addresses())
