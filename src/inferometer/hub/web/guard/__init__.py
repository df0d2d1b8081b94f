"""In front of every page and call: who asks, and what they may do."""
