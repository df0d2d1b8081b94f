"""Holding a process that runs somebody else's model: what it sees, reaches and may use up. See docs/fleet.md."""
