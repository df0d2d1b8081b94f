"""What a question is answered with: calibrations, engines' tables, and the roof of the machine."""
