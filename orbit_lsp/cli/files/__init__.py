"""Commands about files of other tools: reports that another program made, bundles to send away."""
