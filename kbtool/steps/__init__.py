"""The kinds of step that a recipe may have, one module a kind."""
