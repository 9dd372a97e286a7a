"""Run recipes: order, gates, timeouts, progress, records."""
