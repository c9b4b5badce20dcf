"""Tests of the command on a small model, and of the shipped models."""
