"""Commands about a machine and an account, where no kernel is run: doctor, trust, stop, modal, sessions"""
