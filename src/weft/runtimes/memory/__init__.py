"""Host memory: buffers, pools, pages."""
