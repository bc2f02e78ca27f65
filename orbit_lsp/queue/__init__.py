"""Jobs without an editor: submitted, followed, cancelled, kept in one SQLite file, run on a pool of GPUs"""
