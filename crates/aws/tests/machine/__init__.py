"""A machine for tests, with its own root file system and a stand-in for systemd. See README.md."""
