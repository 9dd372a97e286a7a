"""Sweeps: a recipe in a matrix of parameters and commits, scheduled by an engine."""
