"""PyTorch on a GPU, calibrated from inside the process: kernels alone, and whole models."""
