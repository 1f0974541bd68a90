"""A machine for tests: a root of its own, and a stand-in for systemd. See README.md."""
