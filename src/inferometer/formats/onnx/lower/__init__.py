"""Lowering: from a node with known shapes to ops of the vocabulary that work rules know."""
