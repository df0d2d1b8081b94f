"""Small networks and language models that are run through an engine to calibrate it."""
