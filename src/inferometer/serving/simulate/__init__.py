"""A service simulated: requests put into steps by an engine's rules, and every step's time from the cost model."""
