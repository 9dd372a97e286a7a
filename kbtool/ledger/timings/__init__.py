"""Two sides of a benchmark held against one another: what is alike, and what counts as changed."""
