"""Read result files of other tools: one module a tool, each a function of what the file holds."""
