"""Tests of the test EC2: every rule that it adds can be seen to hold, and to be missed."""
