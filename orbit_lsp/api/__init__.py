"""The evaluation server: the queue over HTTP, with a job API of its own and the request forms of common
evaluation servers
"""
