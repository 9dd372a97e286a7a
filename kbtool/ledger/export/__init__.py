"""Records as other tools read them: pure functions from sessions to the bytes of a file."""
