"""Hosted environments: children of two shared storage parents, each with exactly six resources."""
