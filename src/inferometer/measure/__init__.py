"""How fast does it run: the measuring loop, an engine's run, spans of any program, files for engines, calibration."""
