"""The provider `adb`: a phone, with a benchmark that its user names. See place.py."""

from inferometer.hub.places.adb.place import provider

__all__ = ["provider"]
