"""The provider `ssh`: a device that one can log in to. See place.py."""

from inferometer.hub.places.ssh.place import provider

__all__ = ["provider"]
