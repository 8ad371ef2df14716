"""Machine code of this process: plans, threads, and calls from Python without Python code."""
