"""What a job does in the worker, an action each: build, wait for the GPU, run a child process, send the answer"""
