"""Ship the profile that `glasshead tune` measured on this machine, for processors like it.

    glasshead tune
    python benchmarks/ship_profile.py zen3 "quiet machine, 2026-11-27" --has sse4a vaes vpclmulqdq

NAME is the file's. FEATURES are LLVM's names; they distinguish the processor from others that
run the same machine code. The file is written to `glasshead/attention/processors`.
"""

import argparse
import json
import re
from typing import Any

from glasshead.attention import profiles
from glasshead.engines.streaming.kernels import processor


def shipped(
    measured: dict[str, Any], name: str, how: str, has: list[str], lacks: list[str]
) -> dict[str, Any]:
    """Return a measured profile as one that ships.

    Errors: a ValueError if the profile does not hold, or this processor would not be given it.
    """
    profiles.parsed(measured)
    for feature in (*has, *lacks):
        if processor.has(feature) != (feature in has):
            found = "has" if feature in lacks else "lacks"
            raise ValueError(f"features must be those of this processor, which {found} {feature}.")
    kind = {"machine_code": processor.at_hand().name, "has": has, "lacks": lacks}
    threads = measured["machine"]["threads"]
    sentence = f"{measured['how']}, {threads} thread{'s' * (threads > 1)}, {how}"
    rest = {key: value for key, value in measured.items() if key not in ("name", "how")}
    return {"name": name, "for": kind, "how": sentence, **rest}


def text_of(profile: dict[str, Any]) -> str:
    """Return JSON with the numbers of a speed on one line."""
    text, row = json.dumps(profile, indent=1), re.compile(r"\[\s+(-?[\d.][^\]]*?)\s+\]")
    return row.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def main() -> None:
    """Read the measured profile, and write the one that ships."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="of the file and of the profile")
    parser.add_argument("how", help="in which state the machine was, and when")
    parser.add_argument("--has", nargs="*", default=[], metavar="FEATURE")
    parser.add_argument("--lacks", nargs="*", default=[], metavar="FEATURE")
    asked = parser.parse_args()
    own = profiles.own_file()
    try:
        measured = json.loads(own.read_bytes())
    except FileNotFoundError:
        parser.error(f"{own} must be there; run glasshead tune.")
    try:
        profile = shipped(measured, asked.name, asked.how, asked.has, asked.lacks)
    except (ValueError, KeyError, TypeError) as error:
        parser.error(str(error))
    file = profiles.SHIPPED / f"{asked.name}.json"
    file.write_text(text_of(profile), encoding="utf-8")
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
