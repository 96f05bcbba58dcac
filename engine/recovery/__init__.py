"""Putting a tenant back as it was: recovery sets, undo and the dead-man. This layer lies between steps and updater."""
