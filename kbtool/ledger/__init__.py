"""Records become figures: rollups of cost and time."""
