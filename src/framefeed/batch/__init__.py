"""Batch buffers and the frames that go into them, on each device."""
