"""Evidence on which of two versions is slower. It holds whenever one stops to look."""
