"""Commands about a machine and an account, which run no kernel: doctor, trust, stop, modal, sessions."""
