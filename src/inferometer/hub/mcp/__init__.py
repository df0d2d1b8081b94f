"""The verbs as tools of the Model Context Protocol: what programs that use language models call."""
