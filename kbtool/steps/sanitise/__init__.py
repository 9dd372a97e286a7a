"""The step kind ``sanitise``: the built library under the tools of compute-sanitizer."""
