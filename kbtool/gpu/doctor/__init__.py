"""Whether the machine fits the work: facts that are read once, and checks of these facts."""
