"""Serving: load tests of real services. The demand and the figures are `traffic`'s, for a simulation as well."""
