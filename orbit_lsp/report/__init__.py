"""Reports: one self-contained HTML page each, without script and without network, for any browser."""
