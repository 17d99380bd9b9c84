"""Server: the studio's page and its data, for one browser on this machine."""
