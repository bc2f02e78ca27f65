"""What tells about the commands themselves: words, schemas of results, completion in shells."""
