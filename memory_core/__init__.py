"""What the memory knows: no Prefect, no MCP, no HTTP.

Read in this order: `models` (the values that travel), `store_content` (the one path), then its four stages
`validate`, `chunk`, `embed`, `persist`. `ports` are the sockets, `adapters` the plugs, `bootstrap` wires them.
Nothing is re-exported here: import from the module that owns the name.
"""
