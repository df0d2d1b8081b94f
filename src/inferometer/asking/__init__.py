"""The one door to a prediction: a question, the calibration and the roof that answer it, and changes to it."""
