"""Our app on Modal: its image, its containers, what a container keeps."""
