"""Jobs without an editor: they are submitted, followed, cancelled, kept in one SQLite file, and run on a pool of
GPUs.
"""
