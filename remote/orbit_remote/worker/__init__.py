"""The worker: requests in, events out. asyncio, no torch."""
