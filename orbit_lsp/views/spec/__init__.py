"""Launch specs in the editor: diagnostics, hovers, completion, drafts."""
