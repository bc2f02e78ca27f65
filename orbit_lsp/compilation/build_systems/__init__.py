"""What build files of each kind say of how a source is compiled: each is read as text, and nothing of it is run"""
