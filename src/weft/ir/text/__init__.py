"""Text of the IR, printed and parsed exactly."""
