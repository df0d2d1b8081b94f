"""How much memory a graph needs, and whether a device has it."""
