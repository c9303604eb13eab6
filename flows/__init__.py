"""The order, the batches, the report: what Prefect runs."""
