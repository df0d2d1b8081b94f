"""Where a job runs: on this machine, over SSH, on a phone, in a bundle that is carried there. See base.py."""
