"""Recipes become runs: order, gates, timeouts, progress, records."""
