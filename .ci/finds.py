"""Raise where the search of a built site does not lead to what readers look for: .ci/finds.py FOLDER.

A query leads somewhere if a heading or a term of the glossary has its words, as they are typed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

__all__ = ["QUERIES", "lost"]

QUERIES = {  # with the page that has to be among the results
    "epsilon per client": "glossary",
    "adaptive clipping": "glossary",
    "user level": "glossary",
    "client level": "glossary",
    "secure aggregation": "glossary",
    "membership inference": "glossary",
    "noise multiplier": "glossary",
    "federated averaging": "glossary",
    "error feedback": "glossary",
    "DP-SGD": "glossary",
    "whole clients": "privacy",
    "audits": "audits",
    "which algorithm": "algorithms",
    "soteriafl_sgd": "algorithms/soteriafl_sgd",
    "in a notebook": "sweeps",
}


def lost(site: Path) -> list[str]:
    """The queries whose page is not found."""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))

    def pages(query: str) -> set[str]:
        found = [*index["alltitles"].items(), *index["indexentries"].items()]
        hits = (places for entry, places in found if query.lower() in entry.lower())
        return {index["docnames"][place[0]] for places in hits for place in places}

    return [f"{query}: not {page}" for query, page in QUERIES.items() if page not in pages(query)]


if __name__ == "__main__":
    missing = lost(Path(sys.argv[1]))
    print("\n".join(missing) or "what readers look for is found")
    sys.exit(bool(missing))
