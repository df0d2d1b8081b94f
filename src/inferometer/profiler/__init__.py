"""Spans in your own code: recorded cheaply, understood later."""
