"""Serving: the time of one engine step as a value, the steady state of many users, and memory as engines use it."""
