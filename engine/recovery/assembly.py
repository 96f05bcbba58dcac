"""Host-side scripts that share modules: one text with the modules in front, because a host has none of ours."""

from __future__ import annotations

from pathlib import Path

from engine.conversations import HOST_SCRIPT

MODULES = ("trees", "moves", "units", "sets", "conversations", "undo", "dead_man")
"""The modules by the names that a script finds them under, each after those that it uses itself."""


def assembled(script: str) -> str:
    """`script` with every module in front of it, for a host; it finds each one as a global of that name."""
    parts = ["import types"]
    for name in MODULES:
        source = HOST_SCRIPT if name == "conversations" else Path(__file__).with_name(f"{name}_script.py").read_text()
        parts += [
            f"{name} = types.ModuleType({name!r})",
            f"{name}.__dict__.update({{known: globals()[known] for known in {MODULES!r} if known in globals()}})",
            f"exec(compile({source!r}, {name!r}, 'exec'), {name}.__dict__)",
        ]
    return "\n".join([*parts, script])
