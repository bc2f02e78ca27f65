"""Our app on Modal: its image, its containers, and what a container keeps."""
