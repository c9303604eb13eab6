"""Leases as fields of a row. In: a holder. Out: the value of `lease`, which ends by the server's clock. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from memory_core.adapters.mongo_connection import Row
from memory_core.models import Holder


def lease_row(holder: Holder, seconds: float) -> Row:
    """For an update with a pipeline: `$$NOW` is the server's time, so that the clocks of clients do not matter."""
    return {**holder_row(holder), "until": {"$add": ["$$NOW", round(seconds * 1000)]}}


def new_lease(holder: Holder, *, until: datetime) -> Row:
    """For an insert, which knows no `$$NOW`: `until` counts from a time that the server was asked for."""
    return {**holder_row(holder), "until": until}


def holder_row(holder: Holder) -> Row:
    """Who holds something, as a row."""
    return {"token": holder.token, "host": holder.host, "pid": holder.pid, "started": holder.started}


def read_holder(row: Mapping[str, Any]) -> Holder:
    """Who holds a lease."""
    return Holder(host=row["host"], pid=row["pid"], started=row["started"], token=row["token"])
