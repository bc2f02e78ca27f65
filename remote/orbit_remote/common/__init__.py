"""What both sides share: messages, and facts about GPUs and files. Standard library, no process."""
