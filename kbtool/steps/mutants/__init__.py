"""The step kind ``mutants``: put known bugs back one at a time and validate each."""
