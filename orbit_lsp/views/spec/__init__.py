"""Shows launch specs in the editor: diagnostics, hovers, completion, drafts."""
