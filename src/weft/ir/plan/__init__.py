"""Plan level: the records, their text, and the verifier."""
