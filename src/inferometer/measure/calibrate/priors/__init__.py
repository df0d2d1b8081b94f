"""Priors fitted from published whole-model times: cases → a stack of arrays → deviations by level → one data file."""
