"""The provider `ssh`: a device that one can log in to. See place.py."""

from inferometer.providers.ssh.place import provider

__all__ = ["provider"]
