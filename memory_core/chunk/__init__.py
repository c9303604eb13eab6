"""A document in, its chunks out; pure. Start at `chunk_content`."""
