"""Shows what the compiler knows in the editor: costs, occupancy on every GPU, quick fixes."""
