"""The tools themselves: one module for each package. Its functions take a `ToolOrder`, and run in a child."""
