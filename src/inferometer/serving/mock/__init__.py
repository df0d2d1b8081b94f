"""A server without a GPU: OpenAI's interface over the simulator, in real time, for tests of routers and clients."""
