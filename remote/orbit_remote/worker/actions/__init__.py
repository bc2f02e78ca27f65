"""What a job does in the worker, a module for each action: build, wait for the GPU, run a child process, send the
answer.
"""
