"""Results of tools that are no engine: load generators, profilers, benchmark harnesses."""
