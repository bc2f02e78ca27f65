"""The evaluation server: the queue over HTTP, with its own job API and the request forms of common evaluation
servers.
"""
