"""Each stage as a Prefect task: a name, a retry rule, a timeout; no logic."""
