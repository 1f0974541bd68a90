"""Tests of the rules that the test EC2 adds."""
