"""The plugs: one file per outside system, each with one table from vendor error to ours."""
