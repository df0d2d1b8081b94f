"""Many users: load tests of real services, simulated ones, and plans. Demand and figures are `core.traffic`'s."""
