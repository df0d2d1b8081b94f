"""The machine at hand: what it is, how it is, and what its processor counts."""
