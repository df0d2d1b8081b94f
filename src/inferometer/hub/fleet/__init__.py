"""The fleet at the hub: who waits for work, what a job should take, and whether its answer is one."""
