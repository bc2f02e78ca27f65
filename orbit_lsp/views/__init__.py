"""The session as LSP values. The views are pure: they take (session, uri), return lsprotocol types, and use no I/O,
and no clock except `now`.
"""
