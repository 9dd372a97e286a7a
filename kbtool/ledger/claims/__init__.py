"""Claims of the records: found, recomputed, judged and graded."""
