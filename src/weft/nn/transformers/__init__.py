"""Encoders and decoders of the Transformer."""
