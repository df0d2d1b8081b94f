"""The provider `adb`: a phone, with a benchmark that its user names. See place.py."""

from inferometer.providers.adb.place import provider

__all__ = ["provider"]
