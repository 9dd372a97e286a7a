"""The schema: what a record may say. Pydantic models only; no I/O, no torch, no click."""
