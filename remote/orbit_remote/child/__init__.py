"""The process that holds torch and triton, and runs code of the author's."""
