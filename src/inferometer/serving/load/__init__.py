"""A load test: plays a demand against an HTTP endpoint and keeps what came back, request by request."""
