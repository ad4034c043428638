"""The clients' methods that block, generated from those for asyncio."""
