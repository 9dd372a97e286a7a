"""The step kind ``cheats``: try to earn a figure by every known cheat, and by honest variants."""
