"""Driving a runtime: a clean run for the true time, an instrumented one for its shape, and a profile from both."""
