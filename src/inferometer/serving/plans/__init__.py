"""Plans: which devices, engine, format, parallelism and replicas serve a demand within its objectives, the best first."""
