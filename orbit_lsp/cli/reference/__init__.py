"""Commands that explain the others: words, schemas of results, completion in shells."""
