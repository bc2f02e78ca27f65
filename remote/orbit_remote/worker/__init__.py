"""The worker: requests in, events out. It uses asyncio, and no torch."""
