"""Runs on the host: what cloud-init says about its own errors and warnings. Leaves ``RESULT``."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import json


def read(name):
    try:
        with open("/run/cloud-init/" + name, encoding="utf-8") as file:
            return json.load(file).get("v1", {})
    except (OSError, ValueError, AttributeError):
        return {}


def recoverable(stages):
    """Newer versions list, for each stage, recoverable errors by their severity."""
    for name, stage in stages.items():
        if isinstance(stage, dict):
            for severity, messages in stage.get("recoverable_errors", {}).items():
                for message in messages:
                    yield f"{name}: {severity}: {message}"


RESULT = {
    "errors": [str(error) for error in read("result.json").get("errors", [])],
    "warnings": list(recoverable(read("status.json"))),
}
