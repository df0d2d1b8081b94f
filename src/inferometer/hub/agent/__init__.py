"""What runs on a device: the runner of a job."""
