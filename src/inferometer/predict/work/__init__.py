"""Op → Work: what is computed and moved, exactly, for any sizes."""
