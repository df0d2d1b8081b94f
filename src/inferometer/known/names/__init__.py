"""Device names as others publish them → rows of the catalog. Everywhere else names are matched exactly."""

from inferometer.known.names.match import DeviceMatch, match_device

__all__ = ["DeviceMatch", "match_device"]
