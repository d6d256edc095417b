"""Takes from a list of components (CycloneDX) what differs from build to build: its serial number, time and paths.

    python3 dist/components.py IN.json OUT.json
"""

import json
import os
import re
import sys
from datetime import datetime, timezone
from pathlib import Path


def without_paths(value: object) -> object:
    """The same, where directories of the build are `/fhrd`."""
    if isinstance(value, dict):
        return {key: without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_paths(inner) for inner in value]
    return re.sub(re.escape(str(Path.cwd())), "/fhrd", value) if isinstance(value, str) else value


def main() -> None:
    document = json.loads(Path(sys.argv[1]).read_text())
    document.pop("serialNumber", None)
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    document["metadata"]["timestamp"] = datetime.fromtimestamp(seconds, timezone.utc).isoformat()
    Path(sys.argv[2]).write_text(json.dumps(without_paths(document), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
