"""Shape rules: from what is known of a node's inputs to what is known of its outputs, one function a family of ops."""
