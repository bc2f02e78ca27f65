"""The session as LSP values. Pure: (session, uri) in, lsprotocol types out; no I/O, no clock but `now`."""
