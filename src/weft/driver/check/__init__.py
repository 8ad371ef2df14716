"""``WEFT_CHECK=1``: compare results of plans with an unoptimised interpretation of their graphs."""
