"""What both sides share: messages, and facts about GPUs and files. It uses only the standard library, and starts no
process.
"""
