"""The runner for GPUs rented from Modal."""
