"""A real sshd on the loopback, as this user, in the place of a machine with a GPU."""
