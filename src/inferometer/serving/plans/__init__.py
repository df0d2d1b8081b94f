"""Plans: which devices, engine, format, parallelism and replicas serve a demand within objectives, best first."""
