"""Every process that we run: the command line, the supervisor of local services, the only Prefect client."""
