"""Driving a runtime: a clean run for the truth, an instrumented one for the shape, and the profile made of both."""
