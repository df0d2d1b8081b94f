"""From measured points and whole steps to a Calibration."""
