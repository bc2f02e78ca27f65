"""What files have that keep KernelBench's or popcorn's contract"""
