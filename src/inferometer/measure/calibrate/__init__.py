"""What to measure on a device so that predictions of it become true, and the fit."""
