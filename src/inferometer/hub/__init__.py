"""The hub and its fleet: pages and API, the places where jobs run, the agent of a device and the box of a job."""
